//! YAML with positions, and diagnostics that point at them.
//!
//! A [`Document`] is a YAML file as a tree in which every [`Node`] knows its line and column. Readers of a
//! format take typed values from the nodes and collect mistakes in [`Problems`], so that one run reports
//! all of them. [`Diagnostics`] renders the result for a terminal, for a log or for an editor, without
//! passwords.
//!
//! ```
//! use tollgate_document::{Document, Problems, Words};
//!
//! const WORDS: Words = Words { section: "a worker", known: &["threads", "idle"], synonyms: &[] };
//!
//! let document = Document::parse("threads: 4\nidel: 30s\n")?;
//! let mut problems = Problems::default();
//! let fields = document.root().fields(&WORDS, &mut problems).unwrap();
//! let threads = fields.get("threads").and_then(|it| it.whole("`threads`", 1..=64, &mut problems));
//! assert_eq!(threads.map(|it| it.value), Some(4));
//!
//! let wrong = problems.into_diagnostics(&document).render("worker.yaml");
//! assert!(wrong.contains("worker.yaml:2:1") && wrong.contains("did you mean `idle`?"));
//! # Ok::<(), tollgate_document::Diagnostics>(())
//! ```
//!
//! The crate knows no format: the words of the policy file are in `tollgate_policy`, those of the server in
//! the crates that use them. It opens no files.
//!
//! The feature `yaml` (default) parses files. Without it, diagnostics and suggestions are left, for crates
//! whose values can come from a file.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "yaml"), allow(dead_code, reason = "only the parser uses the rest"))]

mod diagnostic;
mod document;
mod mistake;
mod rate;
pub mod sanitize;
mod suggest;

pub use diagnostic::{Diagnostic, DiagnosticView, Diagnostics, Located, Place, Problems, Severity, redacted};
#[cfg(feature = "yaml")]
pub use document::Setting;
pub use document::{
    Document, Entry, Fields, Kind, Node, Synonyms, Words, byte_count, short, synonym, whole_number,
};
pub use mistake::Mistake;
pub use rate::{RateText, Unit, parse_span, rate_words};
pub use suggest::{hint, listed, nearest};
