//! The book of Tollgate as compressed pages, which the API serves for the dashboard.
//!
//! `build/main.rs` renders the pages of `docs/SUMMARY.md` to HTML. A crate of its own, so that a change of a page does not
//! compile the API again. Built outside of the repository, as from a registry, the book is empty.
//!
//! `make docs` builds the same pages with mdBook, with a search.

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Returns the names of all files, such as `guide.html`.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Returns a file of the book, compressed with gzip.
///
/// ```
/// assert_eq!(tollgate_book::gzip("guide.html").is_some(), tollgate_book::names().count() > 0);
/// assert!(tollgate_book::gzip("../Cargo.toml").is_none());
/// ```
pub fn gzip(name: &str) -> Option<&'static [u8]> {
    FILES
        .binary_search_by_key(&name, |(name, _)| name)
        .ok()
        .and_then(|at| FILES.get(at))
        .map(|(_, body)| *body)
}
