//! The URL of a receiver, `http://` or `https://`.
//!
//! Its path may be a secret (a webhook URL is its only credential), so it is not shown.

use std::fmt;

use tollgate_document::{Node, Problems};
use tollgate_net::{HttpUrl, HttpUrlError};

/// The URL of a receiver.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(HttpUrl);

impl Endpoint {
    /// Parses a URL. Messages never repeat it.
    pub(super) fn read(node: &Node, what: &str, problems: &mut Problems) -> Option<Self> {
        let text = node.word(what, problems)?.value;
        HttpUrl::parse(text)
            .map_err(|error| {
                let (message, label) = describe(error);
                problems
                    .error(node.place, format!("{what} {message}"))
                    .label(label)
                    .help("such as http://127.0.0.1:4318 or https://example.com/hooks/1");
            })
            .ok()
            .map(Self)
    }

    /// Returns the URL. Its path may be a secret.
    pub(crate) const fn url(&self) -> &HttpUrl {
        &self.0
    }

    /// Whether to use TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.is_secure()
    }
}

/// Returns a message and a label.
const fn describe(error: HttpUrlError) -> (&'static str, &'static str) {
    match error {
        HttpUrlError::Scheme => ("is a URL that begins with http:// or https://", "this does not"),
        HttpUrlError::Credentials => {
            ("holds a name and a password, which are not sent", "take out what is before the `@`")
        }
        HttpUrlError::Characters => ("holds characters that no URL can", "write them as %20 and the like"),
        HttpUrlError::Port => ("has a port that is not a number from 1 to 65535", "write HOST:PORT"),
        _ => ("names no host", "write HOST:PORT"),
    }
}

/// Omits the path and query, which may be secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = if self.0.target("") == "/" { "" } else { "/…" };
        write!(f, "{}{hidden}", self.0.origin())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Document;

    fn read(text: &str) -> (Option<Endpoint>, Vec<String>) {
        let document = Document::parse(&format!("url: '{text}'")).unwrap();
        let mut problems = Problems::default();
        let endpoint = Endpoint::read(document.root().get("url").unwrap(), "`webhook`", &mut problems);
        let found = problems.into_diagnostics(&document);
        (endpoint, found.iter().map(|it| format!("{} | {}", it.message, it.label)).collect())
    }

    #[test]
    fn every_mistake_has_a_suggestion_and_does_not_quote_the_url() {
        for (text, expected) in [
            ("h:1", "`webhook` is a URL that begins with http:// or https:// | this does not"),
            ("http://", "`webhook` names no host | write HOST:PORT"),
            (
                "http://u:hunter2@h",
                "`webhook` holds a name and a password, which are not sent | take out what is before the `@`",
            ),
            ("http://h:x", "`webhook` has a port that is not a number from 1 to 65535 | write HOST:PORT"),
            ("http://h/a b", "`webhook` holds characters that no URL can | write them as %20 and the like"),
        ] {
            assert_eq!(read(text), (None, vec![expected.to_owned()]), "{text}");
        }
    }

    #[test]
    fn path_and_query_are_not_shown() {
        for (text, expected) in [
            ("https://hooks.test/services/T0/B0/hunter2", "https://hooks.test/…"),
            ("https://hooks.test?token=hunter2", "https://hooks.test/…"),
            ("https://hooks.test:8443/", "https://hooks.test:8443"),
        ] {
            let (endpoint, problems) = read(text);
            let endpoint = endpoint.unwrap();
            assert_eq!(
                (format!("{endpoint} {endpoint:?}"), problems),
                (format!("{expected} {expected}"), vec![])
            );
        }
    }
}
