//! The dashboard: static files, embedded in the binary.
//!
//! The files contain no data and no secret, so they need no token. They load their data from the API,
//! like any other client.
//!
//! `build.rs` lists the files of `page/` (as `FILES`). Browsers revalidate on each load, so a new
//! version shows at once.
//!
//! Authorization is in `access`.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::problem::Problem;
use crate::reply::Reply;

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The content security policy: the page may load its own files and call its own server only.
const PAGE_CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every file.
const COMMON_HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-cache"),
    (CONTENT_SECURITY_POLICY, PAGE_CSP),
    (REFERRER_POLICY, "no-referrer"),
    (VARY, "accept, accept-encoding"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// A file of the dashboard.
struct File {
    name: &'static str,
    body: &'static [u8],
    packed: OnceLock<EncodedFile>,
}

/// The encodings of a file, computed on first use.
struct EncodedFile {
    /// The entity tags of the plain and of the compressed form, which must differ (RFC 9110, section
    /// 8.8.3.3).
    tags: [String; 2],
    /// Present only if it is shorter.
    gzip: Option<Bytes>,
}

impl File {
    const fn new(name: &'static str, body: &'static [u8]) -> Self {
        Self { name, body, packed: OnceLock::new() }
    }

    fn packed(&self) -> &EncodedFile {
        self.packed.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            hasher.write(self.body);
            let hash = hasher.finish();
            EncodedFile {
                tags: [format!("\"{hash:016x}\""), format!("\"{hash:016x}-gzip\"")],
                gzip: packed(self.body).filter(|packed| packed.len() < self.body.len()),
            }
        })
    }

    fn reply(&self, request_headers: &HeaderMap) -> Reply {
        let EncodedFile { tags: [plain, gzipped], gzip } = self.packed();
        let (tag, body) = match gzip.clone().filter(|_| takes_gzip(request_headers)) {
            Some(gzip) => (gzipped, FileBody::Gzip(gzip)),
            None => (plain, FileBody::Plain(Bytes::from_static(self.body))),
        };
        file_reply(kind_of(self.name), tag, body, request_headers)
    }
}

/// The bytes of a file as they are sent.
pub(crate) enum FileBody {
    Plain(Bytes),
    Gzip(Bytes),
}

/// Returns the content type of a file.
pub(crate) fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json" | "webmanifest") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        _ => "application/octet-stream",
    }
}

/// Returns a file, or that the client has it.
pub(crate) fn file_reply(
    kind: &'static str,
    tag: &str,
    body: FileBody,
    request_headers: &HeaderMap,
) -> Reply {
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    headers.extend(COMMON_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    if is_known(request_headers, tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let body = match body {
        FileBody::Plain(body) => body,
        FileBody::Gzip(body) => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            body
        }
    };
    *response.body_mut() = Full::new(body);
    response
}

/// Compresses at the highest level, since this runs once.
fn packed(body: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail; if it did, the file is sent uncompressed.
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether the client accepts gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    names(headers, &ACCEPT_ENCODING, "gzip")
}

/// Whether a list header names this value with a weight above zero (RFC 9110, section 12.4.2).
fn names(headers: &HeaderMap, list: &HeaderName, wanted: &str) -> bool {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_wanted && weight.map_or(Ok(1.0), str::parse::<f32>).is_ok_and(|weight| weight > 0.0)
    })
}

/// Whether the client already has this version.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

/// Returns a file of the dashboard.
pub(crate) fn file(name: &str, request_headers: &HeaderMap) -> Result<Reply, Problem> {
    let file = FILES.iter().find(|file| file.name == name);
    let file =
        file.ok_or_else(|| Problem::not_found("the page has no such file; `GET /` is where it begins"))?;
    Ok(file.reply(request_headers))
}

/// Returns the dashboard for clients that accept HTML. Programs and `curl` do not ask for HTML.
pub(crate) fn index(request_headers: &HeaderMap) -> Option<Reply> {
    if names(request_headers, &ACCEPT, "text/html") { file("index.html", request_headers).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_is_below_a_hundred_kilobytes() {
        let sizes = FILES.iter().map(|file| file.packed().gzip.as_ref().map_or(file.body.len(), Bytes::len));
        let sum: usize = sizes.sum();
        assert!(sum < 100_000, "{sum} bytes, packed");
    }

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for (said, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("identity", false),
            ("xgzip", false),
            ("gzip;q=x", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(said));
            assert_eq!(takes_gzip(&headers), takes, "{said}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        for (said, known) in
            [("\"a\"", true), ("\"b\", W/\"a\"", true), ("*", true), ("\"b\"", false), ("a", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(said));
            assert_eq!(is_known(&headers, "\"a\""), known, "{said}");
        }
    }
}
