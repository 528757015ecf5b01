//! The section `rls.xds`: the configuration server that limits come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use rustls::ClientConfig;
use tollgate_document::{Kind, Node, Problems, Words};
use tollgate_net::{TlsError, client_tls, mutual_tls};
use tollgate_xds::{DEFAULT_MAX_MESSAGE_BYTES, XdsServer, XdsSettings};

use super::{LoadPhase, files, shown};
use crate::failure::Failure;
use crate::store::in_full;

/// The bounds of `max_message_bytes`.
const MIN_MESSAGE_BYTES: u64 = 1 << 10;
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// The settings of the configuration server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XdsSection {
    server: XdsServer,
    node: String,
    metadata: Vec<(String, String)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    server_name: Option<String>,
    tls: Option<XdsTls>,
    max_message_bytes: usize,
}

/// The files for TLS to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct XdsTls {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

const XDS: Words = Words {
    section: "`rls.xds`",
    known: &["server", "node", "metadata", "headers", "server_name", "tls", "max_message_bytes"],
    synonyms: &[
        ("server", &["url", "address", "server_url"]),
        ("node", &["node_id", "id"]),
        ("metadata", &["node_metadata"]),
        ("server_name", &["san", "sni"]),
        ("tls", &["mtls"]),
        ("max_message_bytes", &["max_message_size", "max_msg_size_in_bytes"]),
    ],
};
const XDS_TLS: Words = Words {
    section: "`rls.xds.tls`",
    known: &["ca", "cert", "key"],
    synonyms: &[("ca", &["cacert", "client_ca"]), ("cert", &["certificate"]), ("key", &["private_key"])],
};

impl XdsSection {
    /// Parses the section.
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&XDS, problems)?;
        let mut needed = |word: &str, help: &str| {
            if fields.get(word).is_none() && !fields.mentions(word) {
                problems.error(fields.place(), format!("`rls.xds` has no `{word}`")).help(help);
            }
            fields.get(word)
        };
        let server = needed("server", "it is `host:port` of the configuration server");
        let id = needed(
            "node",
            "the server selects the configuration by this id; Envoy Gateway uses `envoy-ratelimit`",
        );
        let server = server.and_then(|node| {
            let text = node.word("`server`", problems)?;
            let server = XdsServer::parse(text.value);
            if server.is_none() {
                problems
                    .error(text.place, format!("`server` is `host:port`, not {}", node.describe()))
                    .help("such as envoy-gateway:18001");
            }
            server
        });
        let id = id.and_then(|node| node.word("`node`", problems)).map(|it| it.value.to_owned());
        let name = fields.get("server_name").and_then(|node| node.word("`server_name`", problems));
        let bytes = fields.get("max_message_bytes");
        let range = MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES;
        let bytes = bytes.and_then(|node| node.whole("`max_message_bytes`", range, problems));
        let bytes = bytes.map(|it| usize::try_from(it.value).unwrap_or(usize::MAX));
        let metadata = fields.get("metadata").map(|node| pairs(node, "`metadata`", problems));
        let headers = fields.get("headers").map(|node| headers(node, problems));
        let tls = fields.get("tls").and_then(|node| XdsTls::read(node, problems));
        Some(Self {
            server: server?,
            node: id?,
            metadata: metadata.unwrap_or_default(),
            headers: headers.unwrap_or_default(),
            server_name: name.map(|it| it.value.to_owned()),
            tls,
            max_message_bytes: bytes.unwrap_or(DEFAULT_MAX_MESSAGE_BYTES),
        })
    }

    /// Returns the server for messages.
    pub(crate) fn shown(&self) -> String {
        format!("{} as node {}", self.server, self.node)
    }

    /// Returns the settings of the client. Certificates are read for each connection.
    pub(crate) fn settings(&self, merge_domains: bool) -> XdsSettings {
        let mut settings = XdsSettings::new(self.server.clone(), self.node.clone());
        settings.node_metadata.clone_from(&self.metadata);
        settings.headers.clone_from(&self.headers);
        settings.server_name.clone_from(&self.server_name);
        settings.max_message_bytes = self.max_message_bytes;
        settings.merge_domains = merge_domains;
        settings.tls = self.tls.clone().map(|tls| -> tollgate_xds::TlsSource {
            Arc::new(move || {
                tls.load(LoadPhase::Again).map(Arc::new).map_err(|it| it.brief().trim().to_owned())
            })
        });
        settings
    }

    /// Checks the files that the section names.
    pub(super) fn check_files(&self) -> Option<Failure> {
        self.tls.as_ref().and_then(|it| it.load(LoadPhase::First).err())
    }
}

impl XdsTls {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&XDS_TLS, problems)?;
        let mut file = |word: &str| -> Option<PathBuf> {
            Some(fields.get(word)?.word(&format!("`{word}`"), problems)?.value.into())
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        if cert.is_some() != key.is_some() {
            problems
                .error(fields.place(), "`rls.xds.tls` has one of `cert` and `key`, and needs both")
                .help("without a client certificate, leave both out");
        }
        Some(Self { ca, certificate: cert.zip(key) })
    }

    fn load(&self, reading: LoadPhase) -> Result<ClientConfig, Failure> {
        let read = |file: &Path| files::read(file, reading).map(String::into_bytes);
        let ca = self.ca.as_deref().map(read).transpose()?;
        let Some((certificate, key)) = &self.certificate else {
            return client_tls(ca.as_deref()).map_err(|error| {
                let file = self.ca.as_deref().map(shown).unwrap_or_default();
                Failure::new(format_args!(
                    "cannot check the configuration server with {file}: {}",
                    in_full(&error)
                ))
            });
        };
        let config = mutual_tls(ca.as_deref(), &read(certificate)?, &read(key)?);
        config.map_err(|error| {
            let file = match (&error, &self.ca) {
                (TlsError::Authorities(_), Some(ca)) => ca,
                (TlsError::Key, _) => key,
                _ => certificate,
            };
            let (file, why) = (shown(file), in_full(&error));
            Failure::new(format_args!("cannot call the configuration server with {file}: {why}"))
        })
    }
}

/// Reads a map of texts.
fn pairs(node: &Node, called: &str, problems: &mut Problems) -> Vec<(String, String)> {
    let Kind::Map(entries) = &node.kind else {
        problems.error(node.place, format!("{called} is a map of `name: value` lines"));
        return Vec::new();
    };
    let pair = |entry: &tollgate_document::Entry| {
        let value = entry.value.word(called, problems)?;
        Some((entry.name.value.clone(), value.value.to_owned()))
    };
    entries.iter().filter_map(pair).collect()
}

fn headers(node: &Node, problems: &mut Problems) -> Vec<(HeaderName, HeaderValue)> {
    let mut all = Vec::new();
    for (name, value) in pairs(node, "`headers`", problems) {
        match (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => all.push((name, value)),
            _ => {
                problems.error(node.place, format!("`headers` has the name or value of no header: `{name}`"));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (Option<XdsSection>, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut problems = Problems::default();
        let section = XdsSection::read(document.root(), &mut problems);
        let found = problems.into_diagnostics(&document);
        (section, found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect())
    }

    #[test]
    fn every_word_is_parsed() {
        let (section, problems) = read(
            "{server: \"eg:18001\", node: n, metadata: {zone: a}, headers: {x-token: t}, server_name: s, \
             tls: {ca: c, cert: d, key: k}, max_message_bytes: 2048}",
        );
        assert_eq!(problems, [""; 0]);
        let section = section.unwrap();
        assert_eq!(section.shown(), "eg:18001 as node n");
        let settings = section.settings(true);
        assert_eq!(settings.node_metadata, [("zone".to_owned(), "a".to_owned())]);
        assert_eq!((settings.headers.len(), settings.max_message_bytes), (1, 2_048));
        assert!(settings.merge_domains && settings.tls.is_some());
        assert_eq!(settings.server_name.as_deref(), Some("s"));
    }

    #[test]
    fn every_mistake_is_reported() {
        for (text, expected) in [
            ("{node: n}", "`rls.xds` has no `server` | "),
            ("{server: \"h:1\"}", "`rls.xds` has no `node` | "),
            ("{server: h, node: n}", "`server` is `host:port`, not `h` | "),
            ("{server: \"h:1\", node_id: n}", "unknown word `node_id` in `rls.xds` | did you mean `node`?"),
            (
                "{server: \"h:1\", node: n, tls: {cert: c}}",
                "`rls.xds.tls` has one of `cert` and `key`, and needs both | ",
            ),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
        assert!(read("{server: \"h:1\", node: n, max_message_bytes: 1}").1[0].contains("max_message_bytes"));
        assert!(read("{server: \"h:1\", node: n, headers: {\"a b\": c}}").1[0].contains("`headers`"));
    }
}
