//! The links of the embedded book lead to its pages, files and headings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::Read as _;

use flate2::read::GzDecoder;

/// The most that the book may add to the binary.
const MAX_BYTES: usize = 400 * 1024;

fn text(name: &str) -> String {
    let body = tollgate_book::gzip(name).unwrap_or_else(|| panic!("the book has no {name}"));
    let mut text = String::new();
    GzDecoder::new(body).read_to_string(&mut text).unwrap();
    text
}

/// Returns the values of an attribute.
fn values<'t>(html: &'t str, attribute: &str) -> Vec<&'t str> {
    html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_link_leads_to_a_page_a_file_or_a_heading() {
    let pages: Vec<_> = tollgate_book::names().filter(|it| it.strip_suffix(".html").is_some()).collect();
    assert!(pages.len() > 30, "{pages:?}");
    let mut wrong = Vec::new();
    for page in &pages {
        let html = text(page);
        for link in values(&html, "href=\"").into_iter().chain(values(&html, "src=\"")) {
            if link.contains("://") || link.starts_with("../") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { *page } else { file };
            let is_right = tollgate_book::gzip(target).is_some()
                && (heading.is_empty() || text(target).contains(&format!("id=\"{heading}\"")));
            if !is_right {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pages_have_contents_and_no_markers_of_tests() {
    let guide = text("guide.html");
    assert!(guide.contains("<h1") && guide.contains("aria-current=\"page\">"), "{guide}");
    assert!(!guide.contains("not run:"), "markers are for tests");
    assert!(guide.contains("href=\"tollgate-policy-format.html\""));
}

#[test]
fn the_book_is_a_small_part_of_the_binary() {
    let bytes: usize = tollgate_book::names().filter_map(tollgate_book::gzip).map(<[u8]>::len).sum();
    assert!(bytes < MAX_BYTES, "{bytes} bytes");
}
