//! The words of `store` that all kinds of servers have: files, the deadline, the rules of an outage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate::{OutageSettings, Span};
use tollgate_document::{Fields, Node, Problems, Words};
use tollgate_redis::{ClientCertificate, SettingsError};

use super::super::{LoadPhase, files, shown};
use super::values::{deadline, or_off, prefix, share};
use crate::failure::Failure;

const OUTAGE: Words = Words {
    section: "`outage`",
    known: &["failures", "share", "grace"],
    synonyms: &[("failures", &["after", "threshold"]), ("share", &["percent", "fraction"])],
};

/// The maximum deadline. Requests wait this long for the store.
const MAX_DEADLINE: Span = Span::from_secs(10);

/// The files that `store` names, and the behavior while the server does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerSection {
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    /// The client certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
    pub(super) outage: OutageSettings,
}

/// The properties of the URL of a server, and the spelling of a URL without them.
pub(super) struct UrlFacts<'u> {
    pub(super) url: &'u Node,
    pub(super) has_password: bool,
    pub(super) has_tls: bool,
    /// A URL without a password.
    pub(super) without_password: &'u str,
    /// How TLS is written.
    pub(super) with_tls: &'u str,
}

impl ServerSection {
    /// Parses the words, and sets the deadline if there is one.
    pub(super) fn read(fields: &Fields<'_>, limit: &mut Duration, problems: &mut Problems) -> Self {
        let path = |word: &str, problems: &mut Problems| -> Option<PathBuf> {
            Some(fields.get(word)?.word(&format!("`{word}`"), problems)?.value.into())
        };
        let (password_file, ca) = (path("password_file", problems), path("ca", problems));
        let (cert, key) = (path("cert", problems), path("key", problems));
        if cert.is_some() != key.is_some() {
            problems
                .error(fields.place(), "`store` has one of `cert` and `key`, and needs both")
                .help("both are PEM files; without a client certificate, leave both out");
        }
        let range = Span::from_millis(1)..=MAX_DEADLINE;
        if let Some(deadline) = fields.get("deadline").and_then(|node| deadline(node, range, problems)) {
            *limit = deadline;
        }
        Self { password_file, ca, client: cert.zip(key), outage: read_outage(fields, problems) }
    }

    /// Checks that the files are consistent with the URL.
    pub(super) fn check(fields: &Fields<'_>, facts: &UrlFacts<'_>, problems: &mut Problems) {
        let place = facts.url.items().first().unwrap_or(facts.url).place;
        if let Some(node) = fields.get("password_file").filter(|_| facts.has_password) {
            problems
                .error(node.place, "the password is given twice")
                .label("here")
                .related(place, "and in the URL")
                .help(format!("take it out of the URL: {}", facts.without_password));
        }
        for word in ["ca", "cert"] {
            let Some(node) = fields.get(word).filter(|_| !facts.has_tls) else { continue };
            problems
                .error(node.place, format!("`{word}` is for TLS, and this URL does not use TLS"))
                .label("nothing to check")
                .related(place, "no TLS here")
                .help(format!("TLS is used with {}; without it, leave `{word}` out", facts.with_tls));
        }
    }

    /// Whether the password is in a file.
    pub(super) const fn has_password_file(&self) -> bool {
        self.password_file.is_some()
    }

    /// Reads the password, if it is in a file. `name` names it in messages.
    pub(super) fn load_password(
        &self,
        password: &mut Option<String>,
        name: &str,
        reading: LoadPhase,
    ) -> Result<(), Failure> {
        if let Some(file) = &self.password_file {
            *password = Some(files::password(file, name, reading)?);
        }
        Ok(())
    }

    /// Returns the certificates, if they are in a file.
    pub(super) fn ca(&self, reading: LoadPhase) -> Result<Option<Vec<u8>>, Failure> {
        self.ca.as_ref().map(|file| certificates(file, "`store.ca`", reading)).transpose()
    }

    /// Returns the client certificate and its key, if they are in files.
    pub(super) fn client(&self, reading: LoadPhase) -> Result<Option<ClientCertificate>, Failure> {
        let Some((cert, key)) = &self.client else { return Ok(None) };
        let chain = certificates(cert, "`store.cert`", reading)?;
        Ok(Some(ClientCertificate { chain, key: files::read(key, reading)?.into_bytes() }))
    }
}

/// Parses the prefix of all names in the store, if the section has one.
pub(super) fn read_prefix(fields: &Fields<'_>, to: &mut String, problems: &mut Problems) {
    if let Some(prefix) = fields.get("prefix").and_then(|node| prefix(node, problems)) {
        *to = prefix;
    }
}

/// Reports a URL that cannot be parsed. `kind` is the expected text, such as "a URL of Redis".
pub(super) fn report_url(node: &Node, kind: &str, error: &SettingsError, problems: &mut Problems) {
    let place = node.items().get(error.index).unwrap_or(node).place;
    let problem = problems.error(place, format!("this is not {kind}: {}", error.wrong));
    if error.expected.starts_with("did you mean") {
        problem.label(error.expected.as_str());
    } else {
        problem.help(error.expected.as_str());
    }
}

/// Reads the map `outage` of the section, if it has one.
fn read_outage(section: &Fields<'_>, problems: &mut Problems) -> OutageSettings {
    let mut settings = OutageSettings::default();
    let Some(fields) = section.get("outage").and_then(|node| node.fields(&OUTAGE, problems)) else {
        return settings;
    };
    if let Some(node) = fields.get("failures")
        && let Some(failures) = node.whole("`failures`", 1..=1_000_000, problems)
    {
        settings.failures = u32::try_from(failures.value).unwrap_or(u32::MAX);
    }
    if let Some(share) = fields.get("share").and_then(|node| share(node, problems)) {
        settings.share = share;
    }
    if let Some(node) = fields.get("grace") {
        let range = Span::from_millis(1)..=Span::from_hours(24);
        settings.grace = or_off(node, "`grace`", range, problems).unwrap_or_default();
    }
    settings
}

/// Reports words that this kind of store does not have.
pub(super) fn refuse_words(fields: &Fields<'_>, words: &[(&str, &str, &str)], problems: &mut Problems) {
    for (word, why, help) in words {
        if let Some(node) = fields.get(word) {
            problems.error(node.place, format!("`{word}` is {why}")).label("no effect here").help(*help);
        }
    }
}

fn certificates(file: &Path, word: &str, reading: LoadPhase) -> Result<Vec<u8>, Failure> {
    let text = files::read(file, reading)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(Failure::with_help(
            format_args!("{} holds no certificate", shown(file)),
            format_args!("{word} is a PEM file: it has a line -----BEGIN CERTIFICATE-----"),
        ));
    }
    Ok(text.into_bytes())
}
