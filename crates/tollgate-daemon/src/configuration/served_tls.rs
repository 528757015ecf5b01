//! TLS of a listener: a certificate, its key, and optionally a client CA.

use std::path::{Path, PathBuf};

use tollgate_document::{Node, Problems, Words};
use tollgate_net::{ClientCertificates, Tls, TlsError};

use super::{LoadPhase, files, shown};
use crate::failure::Failure;
use crate::store::in_full;

/// The TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedTls {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// Returns the words of a TLS section with this name.
pub(super) const fn words(section: &'static str) -> Words {
    Words {
        section,
        known: &["certificate", "key", "client_ca"],
        synonyms: &[
            ("certificate", &["cert"]),
            ("key", &["certificate_key", "private_key"]),
            ("client_ca", &["ca", "client_cas"]),
        ],
    }
}

impl ServedTls {
    /// Parses the section.
    pub(super) fn read(node: &Node, words: &Words, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(words, problems)?;
        let mut file = |word: &str, is_needed: bool| -> Option<PathBuf> {
            if let Some(node) = fields.get(word) {
                return Some(node.word(&format!("`{word}`"), problems)?.value.into());
            }
            if is_needed && !fields.mentions(word) {
                problems
                    .error(fields.place(), format!("{} has no `{word}`", words.section))
                    .help("it needs two PEM files: `certificate` and `key`");
            }
            None
        };
        let (certificate, key) = (file("certificate", true), file("key", true));
        let client_ca = file("client_ca", false);
        Some(Self { certificate: certificate?, key: key?, client_ca })
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    /// Whether callers may authenticate by certificate.
    pub(crate) const fn knows_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Loads the files. With `or_else`, a client without a certificate may authenticate in another way.
    pub(crate) fn load(&self, surface: &str, or_else: bool) -> Result<Tls, Failure> {
        let (chain, key) = (read(&self.certificate)?, read(&self.key)?);
        let clients = self.client_ca.as_deref().map(|file| Ok((file, read(file)?))).transpose()?;
        let shown_by_clients =
            if or_else { ClientCertificates::Optional } else { ClientCertificates::Required };
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
            let (file, why) = (shown(file), in_full(&error));
            Failure::new(format_args!("cannot serve {surface} over TLS with {file}: {why}"))
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    files::read(file, LoadPhase::First).map(String::into_bytes)
}
