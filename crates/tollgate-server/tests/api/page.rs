//! The dashboard: files, headers and caching.

use std::io::{Read as _, Write as _};
use std::sync::OnceLock;

use http::Request;
use http_body_util::Full;

use crate::support::{Answer, subject};

const POLICY: &str = "limits: [{name: api, by: ip, bucket: 5/minute}]";

fn get(path: &str, headers: &[(&str, &str)]) -> Answer {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    subject(POLICY).send(request.body(Full::default()).unwrap())
}

#[test]
fn browsers_get_the_page_and_programs_the_index() {
    let browser = get("/", &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]);
    assert_eq!(browser.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(browser.body, get("/page/index.html", &[]).body);
    let others = ["*/*", "application/json", "text/html;q=0", "text/html;level=1;q=0.0, */*", "xtext/html"];
    let others = others.map(|accept| [("accept", accept)]);
    for accept in [&[][..]].into_iter().chain(others.iter().map(|it| &it[..])) {
        let index = get("/", accept);
        assert_eq!(index.header("content-type"), Some("text/plain; charset=utf-8"), "{accept:?}");
        assert_eq!(index.header("vary"), Some("accept"), "{accept:?}");
    }
}

#[test]
fn the_page_uses_only_its_own_server() {
    for path in ["/", "/page/index.html"] {
        let page = get(path, &[("accept", "text/html")]);
        let may = page.header("content-security-policy").unwrap();
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"]
        {
            assert!(may.contains(part), "{path}: {part}");
        }
        assert!(!may.contains("unsafe"), "{may}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(page.header("cache-control"), Some("no-cache"));
        for loads in ["src=\"http", "href=\"http", "src=\"//", "href=\"//"] {
            assert!(!page.text().contains(loads), "{path} loads from another host");
        }
    }
}

#[test]
fn gzip_decompresses_to_the_plain_file() {
    let (plain, packed) =
        (get("/page/index.html", &[]), get("/page/index.html", &[("accept-encoding", "gzip, br")]));
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    assert!(packed.body.len() < plain.body.len());
    assert_ne!(plain.header("etag"), packed.header("etag"), "two encodings have two tags");
    assert!(packed.header("vary").unwrap().contains("accept-encoding"));
}

#[test]
fn an_unchanged_file_is_not_sent_again() {
    let first = get("/", &[("accept", "text/html"), ("accept-encoding", "gzip")]);
    let tag = first.header("etag").unwrap();
    let again = get("/", &[("accept", "text/html"), ("accept-encoding", "gzip"), ("if-none-match", tag)]);
    assert_eq!((again.status.as_u16(), again.body.len(), again.header("etag")), (304, 0, Some(tag)));
    let plain = get("/", &[("accept", "text/html"), ("if-none-match", tag)]);
    assert_eq!(plain.status, 200, "the tag is of another encoding");
}

#[test]
fn only_files_of_the_page_are_served() {
    for path in ["/page/Cargo.toml", "/page/..", "/page/%2e%2e", "/page/..%2fCargo.toml", "/page/INDEX.HTML"]
    {
        assert_eq!(get(path, &[]).status, 404, "{path}");
        get(path, &[]).problem();
    }
}

/// Returns a page, compressed.
fn book(name: &str) -> Option<&'static [u8]> {
    static PAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let page = || {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"<h1>A page</h1>").unwrap();
        encoder.finish().unwrap()
    };
    (name == "readme.html").then(|| PAGE.get_or_init(page).as_slice())
}

#[test]
fn a_page_of_the_book_is_sent_as_the_client_accepts_it() {
    let subject = subject(POLICY);
    let _same = subject.api.clone().with_book(book);
    let get = |path: &str, headers: &[(&str, &str)]| {
        let request =
            headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
        subject.send(request.body(Full::default()).unwrap())
    };
    let (plain, packed) = (get("/book/", &[]), get("/book/readme.html", &[("accept-encoding", "gzip")]));
    assert_eq!((plain.status.as_u16(), plain.text()), (200, "<h1>A page</h1>"));
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(Some(&packed.body[..]), book("readme.html"));
    for answer in [&plain, &packed] {
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(answer.header("content-security-policy").unwrap().contains("script-src 'self'"));
    }
    assert_ne!(plain.header("etag"), packed.header("etag"));
    let known = [("if-none-match", plain.header("etag").unwrap())];
    assert_eq!(get("/book/", &known).status, 304);
    assert_eq!(get("/book/other.html", &[]).status, 404);
}

#[test]
fn a_program_without_the_book_says_so() {
    for path in ["/book/", "/book/guide.html"] {
        let answer = get(path, &[]);
        assert_eq!(answer.status, 404);
        assert!(answer.text().contains("built without the book"), "{path}: {}", answer.text());
    }
}
