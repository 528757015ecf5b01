//! The book of the documentation: compressed pages that the program embeds.
//!
//! Like the files of the dashboard (`page`), they contain no data and no secret, so they need no token.

use std::hash::{DefaultHasher, Hasher};
use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;

use crate::page::{FileBody, file_reply, kind_of, takes_gzip};
use crate::problem::Problem;
use crate::reply::Reply;

/// Returns a file of the book by its name, such as `guide.html`, compressed with gzip.
pub type Book = fn(&str) -> Option<&'static [u8]>;

/// The page of `/book/`.
const FIRST_PAGE: &str = "readme.html";

/// Returns a file of the book.
pub(crate) fn file(book: Option<Book>, name: &str, request_headers: &HeaderMap) -> Result<Reply, Problem> {
    let name = if name.is_empty() { FIRST_PAGE } else { name };
    let found = book.filter(|book| book(FIRST_PAGE).is_some()).map(|book| book(name));
    let gzip = match found {
        Some(Some(gzip)) => gzip,
        Some(None) => return Err(Problem::not_found("the book has no such page; /book/ is where it begins")),
        None => {
            return Err(Problem::not_found(
                "this program was built without the book: see docs/ of its sources",
            ));
        }
    };
    let is_packed = takes_gzip(request_headers);
    let mut hasher = DefaultHasher::new();
    hasher.write(gzip);
    let tag = format!("\"{:016x}{}\"", hasher.finish(), if is_packed { "-gzip" } else { "" });
    let body =
        if is_packed { FileBody::Gzip(Bytes::from_static(gzip)) } else { FileBody::Plain(unpacked(gzip)) };
    Ok(file_reply(kind_of(name), &tag, body, request_headers))
}

/// Decompresses a file for a client that does not.
fn unpacked(gzip: &[u8]) -> Bytes {
    let mut plain = Vec::new();
    // The bytes are part of the program. If they were damaged, a part of the page is shown.
    let _damaged = GzDecoder::new(gzip).read_to_end(&mut plain);
    plain.into()
}
