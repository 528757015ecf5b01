//! Reads the `outbound` section of the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, header};
use tollgate::Span;
use tollgate_document::{Node, Problems, Words};
use tollgate_net::HttpUrl;

/// One service that workers call through the outbound gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundSettings {
    /// The name, for messages.
    pub name: String,
    /// The local address.
    pub listen: String,
    /// The URL of the service.
    pub upstream: HttpUrl,
    /// The authorities that the service is verified with.
    pub authorities: Authorities,
    /// The value of `Host`, if it is not that of the URL.
    pub host: Option<String>,
    /// The credential that replaces that of the workers.
    pub credential: Option<Credential>,
    /// Whether calls are paced by the headers of responses.
    pub learn: bool,
    /// The time for a call with all its waits and attempts, until its response begins.
    pub timeout: Duration,
    /// The most attempts of a call.
    pub tries: u32,
}

/// The authorities that a service is verified with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorities {
    /// Those that browsers trust, built in.
    #[default]
    Public,
    /// Those of the operating system.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// A credential that is read from a file at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The file.
    pub file: PathBuf,
    /// The header. In `Authorization`, a value of one word is sent as a bearer token.
    pub header: HeaderName,
}

const CREDENTIAL: Words = Words {
    section: "`credential`",
    known: &["file", "header"],
    synonyms: &[("file", &["token_file", "path"]), ("header", &["name"])],
};

const OUTBOUND: Words = Words {
    section: "`outbound`",
    known: &["name", "listen", "upstream", "host", "credential", "ca", "learn", "timeout", "tries"],
    synonyms: &[
        ("upstream", &["url", "target", "backend"]),
        ("tries", &["attempts", "retries"]),
        ("timeout", &["deadline"]),
        ("listen", &["address"]),
        ("ca", &["upstream_ca", "roots"]),
        ("credential", &["credentials", "token", "token_file"]),
    ],
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_TRIES: u32 = 20;
const MAX_TIMEOUT: Span = Span::from_hours(24);

impl OutboundSettings {
    /// Reads all entries of the section. Adds mistakes to `problems`.
    pub fn read(section: Option<&Node>, problems: &mut Problems) -> Vec<Self> {
        let Some(section) = section else { return Vec::new() };
        let entries = section.items();
        if entries.is_empty() {
            problems
                .error(section.place, "`outbound` must be a list of services")
                .help("write `outbound: [{listen: 127.0.0.1:9000, upstream: https://api.example.com}]`");
        }
        let read: Vec<_> = entries.iter().filter_map(|entry| Self::read_entry(entry, problems)).collect();
        for (at, one) in read.iter().enumerate() {
            let is_fixed = !one.listen.ends_with(":0");
            if is_fixed && read[..at].iter().any(|other| other.listen == one.listen) {
                let place = entries.get(at).map_or(section.place, |entry| entry.place);
                problems
                    .error(place, format!("two services of `outbound` listen on {}", one.listen))
                    .help("give each a port of its own");
            }
        }
        read
    }

    fn read_entry(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&OUTBOUND, problems)?;
        let mut text = |word: &str, needed: bool| {
            if needed && fields.get(word).is_none() {
                problems
                    .error(node.place, format!("this service of `outbound` has no `{word}`"))
                    .help("it needs a local address, `listen: 127.0.0.1:9000`, and `upstream: https://api.example.com`");
            }
            let value = fields.get(word)?.word(&format!("`{word}`"), problems)?;
            Some(value.value.to_owned())
        };
        let (name, listen, upstream) = (text("name", false), text("listen", true), text("upstream", true));
        let authorities = match text("ca", false) {
            None => Authorities::Public,
            Some(word) if word == "system" => Authorities::System,
            Some(path) => Authorities::File(path.into()),
        };
        let host = text("host", false).filter(|host| {
            let is_valid =
                HeaderValue::try_from(host.as_str()).is_ok() && Authority::try_from(host.as_str()).is_ok();
            if !is_valid {
                let place = fields.get("host").map_or(node.place, |it| it.place);
                problems
                    .error(place, "`host` is not the name of a host")
                    .help("write it as `api.example.com`");
            }
            is_valid
        });
        let credential = fields.get("credential").and_then(|it| Credential::read(it, problems));
        let upstream = upstream.and_then(|url| match HttpUrl::parse(&url) {
            Ok(url) if !url.has_query() => Some(url),
            Ok(_) => {
                let place = fields.get("upstream").map_or(node.place, |it| it.place);
                problems.error(place, "`upstream` has a query").help("write the URL without `?…`");
                None
            }
            Err(wrong) => {
                let place = fields.get("upstream").map_or(node.place, |it| it.place);
                problems
                    .error(place, format!("`upstream` is not the URL of a service: {wrong}"))
                    .help("write it as `https://api.example.com`");
                None
            }
        });
        let learn = fields.get("learn").and_then(|it| it.boolean("`learn`", problems));
        let least = Span::from_millis(1);
        let timeout =
            fields.get("timeout").and_then(|it| it.span("`timeout`", least..=MAX_TIMEOUT, problems));
        let tries = fields.get("tries").and_then(|it| it.whole("`tries`", 1..=1_000, problems));
        let upstream = upstream?;
        Some(Self {
            name: name.unwrap_or_else(|| upstream.host().to_owned()),
            listen: listen?,
            upstream,
            authorities,
            host,
            credential,
            learn: learn.is_none_or(|it| it.value),
            timeout: timeout.map_or(DEFAULT_TIMEOUT, |it| it.value.into()),
            tries: tries.and_then(|it| u32::try_from(it.value).ok()).unwrap_or(DEFAULT_TRIES),
        })
    }
}

impl Credential {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&CREDENTIAL, problems)?;
        let Some(file) = fields.get("file") else {
            problems
                .error(node.place, "this `credential` has no `file`")
                .help("write `credential: {file: /etc/tollgate/partner.token}`");
            return None;
        };
        let file = file.word("`file`", problems)?.value.into();
        let header = match fields.get("header") {
            None => header::AUTHORIZATION,
            Some(node) => {
                let name = HeaderName::try_from(node.word("`header`", problems)?.value).ok();
                if name.is_none() {
                    problems
                        .error(node.place, "`header` is not the name of a header")
                        .help("write it as `X-API-Key`");
                }
                name?
            }
        };
        Some(Self { file, header })
    }
}

#[cfg(test)]
mod tests {
    use tollgate_document::Document;

    use super::*;

    fn read(text: &str) -> Result<Vec<OutboundSettings>, String> {
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let mut problems = Problems::default();
        let read = OutboundSettings::read(document.root().get("outbound"), &mut problems);
        if problems.has_errors() { Err(problems.into_diagnostics(&document).to_string()) } else { Ok(read) }
    }

    #[test]
    fn the_defaults_are_those_of_the_documents() {
        let short =
            read("outbound: [{name: a, listen: '127.0.0.1:9000', upstream: 'https://api.example.com'}]");
        let long = read(
            "outbound:\n  - {name: a, listen: 127.0.0.1:9000, upstream: https://api.example.com, learn: true, timeout: 60s, tries: 20}\n",
        );
        assert_eq!(short, long);
        assert_eq!(short.unwrap()[0].upstream.host(), "api.example.com");
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (text, said) in [
            ("outbound: []", "must be a list of services"),
            ("outbound: [{listen: 'a:1'}]", "has no `upstream`"),
            ("outbound: [{upstream: 'https://h'}]", "has no `listen`"),
            ("outbound: [{listen: 'a:1', upstream: 'h'}]", "not the URL of a service"),
            ("outbound: [{listen: 'a:1', upstream: 'https://h', retries: 3}]", "tries"),
            ("outbound: [{listen: 'a:1', upstream: 'https://h', tries: 0}]", "tries"),
            ("outbound: [{listen: 'a:1', upstream: 'https://h', credential: {header: a}}]", "has no `file`"),
            (
                "outbound: [{listen: 'a:1', upstream: 'https://h', credential: {file: f, header: 'a b'}}]",
                "not the name of a header",
            ),
            ("outbound: [{listen: 'a:1', upstream: 'https://h', host: 'a b'}]", "not the name of a host"),
            (
                "outbound: [{listen: 'a:1', upstream: 'https://h'}, {listen: 'a:1', upstream: 'https://g'}]",
                "listen on a:1",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
