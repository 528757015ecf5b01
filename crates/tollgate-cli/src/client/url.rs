//! The URL of the API: `http://host:port` or `https://…`, optionally with a path before `/v1`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_daemon::Failure;
use tollgate_document::sanitize::Printable;
use tollgate_net::HttpUrl;

/// Parses the URL of the API. `127.0.0.1:7070` without a scheme is unambiguous.
pub(super) fn parse(text: &str) -> Result<HttpUrl, Failure> {
    let url =
        if text.contains("://") { HttpUrl::parse(text) } else { HttpUrl::parse(&format!("http://{text}")) };
    url.ok().filter(|url| !url.has_query()).ok_or_else(|| {
        Failure::with_help(
            format_args!("`{}` is not the URL of an API", Printable(text)),
            "such as http://127.0.0.1:7070",
        )
    })
}

/// The characters that RFC 3986 does not list as unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes text as one path segment (RFC 3986, section 3.3).
pub(crate) fn segment(text: &str) -> String {
    // A segment of only dots would be normalized away.
    if matches!(text, "." | "..") {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_needs_no_scheme_and_has_no_query() {
        for (text, expected) in [
            ("http://127.0.0.1:7070/", Some("http://127.0.0.1:7070")),
            ("127.0.0.1:7070", Some("http://127.0.0.1:7070")),
            ("[::1]:7070", Some("http://[::1]:7070")),
            ("http://tollgate/limits/", Some("http://tollgate/limits")),
            ("https://tollgate", Some("https://tollgate")),
            ("ftp://tollgate", None),
            ("http://:7070", None),
            ("http://::1:80", None),
            ("http://user@host", None),
            ("http://host/?x", None),
            ("", None),
        ] {
            assert_eq!(parse(text).ok().map(|url| url.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn any_name_is_encoded_as_one_segment() {
        assert_eq!(segment("a/b?c%ä"), "a%2Fb%3Fc%25%C3%A4");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("api-v1.search"), "api-v1.search");
    }
}
