//! The book of the documentation, which the binary embeds.

use tollgate_testkit::Tollgate;

use super::BINARY;
use super::client::{Answer, get};

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).unwrap()
}

#[test]
fn the_dashboard_links_to_the_book_and_serves_it() {
    let service = Tollgate::start(BINARY, super::ROOMY);
    let dashboard = get(service.api, "/page/index.html");
    assert!(text(&dashboard).contains("href=\"book/readme.html\""));
    let first = get(service.api, "/book/");
    assert_eq!((first.status, first.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(first.body, get(service.api, "/book/readme.html").body);
    for (page, words) in [
        ("guide.html", "From a question to an enforced limit"),
        ("tollgate-policy-format.html", "<table>"),
        ("simulate-edge.svg", "<svg"),
        ("book.css", ".book"),
    ] {
        let answer = get(service.api, &format!("/book/{page}"));
        assert_eq!(answer.status, 200, "{page}");
        assert!(text(&answer).contains(words), "{page}: {}", text(&answer));
    }
    for wrong in ["/book/nothing.html", "/book/..%2fCargo.toml", "/book/../v1/limits/x"] {
        assert_eq!(get(service.api, wrong).status, 404, "{wrong}");
    }
}
