//! The `admin` section: access to the API.
//!
//! One token grants everything, another one reads. `tls` serves the API over TLS; with `client_ca`, a
//! client certificate grants everything too, and without a token it is required.

use std::path::PathBuf;

use tollgate_document::{Node, Problems, Words};

use super::served_tls::{self, ServedTls};
use super::{LoadPhase, Token};
use crate::failure::Failure;

/// Access to the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    /// The file with the token that grants changes.
    pub(crate) token_file: Option<PathBuf>,
    /// The file with the token that grants reads.
    pub(crate) read_token_file: Option<PathBuf>,
    /// TLS of the API.
    pub(crate) tls: Option<ServedTls>,
}

const ADMIN: Words = Words {
    section: "`admin`",
    known: &["token_file", "read_token_file", "tls"],
    synonyms: &[
        ("token_file", &["token", "password", "secret"]),
        ("read_token_file", &["read_token", "viewer_token_file"]),
        ("tls", &["certificate", "mtls", "client_ca"]),
    ],
};

const TLS: Words = served_tls::words("`admin.tls`");

impl AdminSettings {
    /// Parses the section.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let Some(fields) = node.fields(&ADMIN, problems) else { return Self::default() };
        let mut file = |word: &str| -> Option<PathBuf> {
            Some(fields.get(word)?.word(&format!("`{word}`"), problems)?.value.into())
        };
        let (token_file, read_token_file) = (file("token_file"), file("read_token_file"));
        let tls = fields.get("tls").and_then(|node| ServedTls::read(node, &TLS, problems));
        Self { token_file, read_token_file, tls }
    }

    /// Whether callers may authenticate by certificate.
    pub(crate) fn knows_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(ServedTls::knows_clients)
    }

    /// Checks the files that the section names.
    pub(super) fn check_files(&self) -> Vec<Failure> {
        let token = |file: &Option<PathBuf>| {
            file.as_deref().and_then(|it| Token::from_file(it, LoadPhase::First).err())
        };
        let tls = self.tls.as_ref().and_then(|it| it.load("the API", false).err());
        [token(&self.token_file), token(&self.read_token_file), tls].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    #[test]
    fn every_mistake_has_a_suggestion() {
        for (text, expected) in [
            ("admin: {token: abc}", "unknown word `token` in `admin` | did you mean `token_file`?"),
            (
                "admin: {tls: {cert: f, key: k}}",
                "unknown word `cert` in `admin.tls` | did you mean `certificate`?",
            ),
            ("admin: {tls: {key: k}}", "`admin.tls` has no `certificate` | "),
            ("admin: {tls: {certificate: c}}", "`admin.tls` has no `key` | "),
        ] {
            let document = Document::parse(text).unwrap();
            let mut problems = Problems::default();
            AdminSettings::read(document.root().get("admin").unwrap(), &mut problems);
            let found = problems.into_diagnostics(&document);
            let found: Vec<_> = found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect();
            assert_eq!(found, [expected], "{text}");
        }
    }
}
