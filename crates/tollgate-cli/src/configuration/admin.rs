//! Who may use the API: the `admin` section.
//!
//! A token opens everything, a second one only what shows. `tls` serves the API over
//! TLS; with `client_ca` a certificate opens everything too, and without a token
//! nobody gets in who has none.

use std::path::{Path, PathBuf};

use tollgate::policy::{Node, Problems, Words};
use tollgate_net::{ClientCertificates, Tls, TlsError};

use super::{Reading, Token, files, shown};
use crate::failure::Failure;
use crate::store::in_full;

/// Who may use the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    /// The file that holds what callers must know who change things.
    pub(crate) token_file: Option<PathBuf>,
    /// The file that holds what callers must know who only look.
    pub(crate) read_token_file: Option<PathBuf>,
    /// How the API is served over TLS.
    pub(crate) tls: Option<AdminTls>,
}

/// How the API is served over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminTls {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

const ADMIN: Words = Words {
    section: "`admin`",
    known: &["token_file", "read_token_file", "tls"],
    elsewhere: &[
        ("token", "token_file"),
        ("password", "token_file"),
        ("secret", "token_file"),
        ("read_token", "read_token_file"),
        ("viewer_token_file", "read_token_file"),
        ("certificate", "tls"),
        ("mtls", "tls"),
        ("client_ca", "tls"),
    ],
};

const TLS: Words = Words {
    section: "`admin.tls`",
    known: &["certificate", "key", "client_ca"],
    elsewhere: &[
        ("cert", "certificate"),
        ("certificate_key", "key"),
        ("private_key", "key"),
        ("ca", "client_ca"),
        ("client_cas", "client_ca"),
    ],
};

impl AdminSettings {
    /// Reads the section.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Self {
        let Some(fields) = node.fields(&ADMIN, problems) else { return Self::default() };
        let mut file = |word: &str| -> Option<PathBuf> {
            Some(fields.get(word)?.word(&format!("`{word}`"), problems)?.value.into())
        };
        let (token_file, read_token_file) = (file("token_file"), file("read_token_file"));
        let tls = fields.get("tls").and_then(|node| AdminTls::read(node, problems));
        Self { token_file, read_token_file, tls }
    }

    /// Whether callers can be told by their certificate.
    pub(crate) fn knows_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|it| it.client_ca.is_some())
    }

    /// What is wrong with the files it names.
    pub(super) fn check_files(&self) -> Vec<Failure> {
        let token = |file: &Option<PathBuf>| {
            file.as_deref().and_then(|it| Token::from_file(it, Reading::First).err())
        };
        let tls = self.tls.as_ref().and_then(|it| it.load(false).err());
        [token(&self.token_file), token(&self.read_token_file), tls].into_iter().flatten().collect()
    }
}

impl AdminTls {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&TLS, problems)?;
        let mut file = |word: &str, is_needed: bool| -> Option<PathBuf> {
            if let Some(node) = fields.get(word) {
                return Some(node.word(&format!("`{word}`"), problems)?.value.into());
            }
            if is_needed && !fields.mentions(word) {
                problems
                    .error(fields.place(), format!("`admin.tls` has no `{word}`"))
                    .help("it needs two PEM files: `certificate` and `key`");
            }
            None
        };
        let (certificate, key) = (file("certificate", true), file("key", true));
        let client_ca = file("client_ca", false);
        Some(Self { certificate: certificate?, key: key?, client_ca })
    }

    /// Ready to serve. `has_token`: who shows no certificate can show a token.
    pub(crate) fn load(&self, has_token: bool) -> Result<Tls, Failure> {
        let (chain, key) = (read(&self.certificate)?, read(&self.key)?);
        let clients = self.client_ca.as_deref().map(|file| Ok((file, read(file)?))).transpose()?;
        let shown_by_clients =
            if has_token { ClientCertificates::Optional } else { ClientCertificates::Required };
        let tls = match &clients {
            None => Tls::from_pem(&chain, &key),
            Some((_, pem)) => Tls::with_clients(&chain, &key, pem, shown_by_clients),
        };
        tls.map_err(|error| {
            let file = match (&error, &clients) {
                (TlsError::Key, _) => self.key.as_path(),
                (TlsError::Clients(_), Some((file, _))) => file,
                _ => self.certificate.as_path(),
            };
            Failure::new(format_args!(
                "cannot serve the API over TLS with {}: {}",
                shown(file),
                in_full(&error)
            ))
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    files::read(file, Reading::First).map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::policy::Document;

    #[test]
    fn every_mistake_says_what_was_probably_meant() {
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
