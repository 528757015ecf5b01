//! Lints: each has a code and a page, and is reported exactly where it applies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod cases;
mod doors;
mod expecting;
mod never;
mod pages;

use tollgate_document::Document;
use tollgate_policy::Policy;

/// Returns the codes of a policy's warnings, in file order.
fn codes(text: &str) -> Vec<&'static str> {
    let policy =
        Policy::from_document(&Document::parse(text).unwrap()).unwrap_or_else(|it| panic!("{text}\n{it}"));
    policy.warnings().iter().map(|it| it.code.unwrap_or_else(|| panic!("{text}\n{it:?}"))).collect()
}
