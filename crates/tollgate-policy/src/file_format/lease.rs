//! How long a node may hold leased units: `lease` of a limit and of the store.

use tollgate_core::Span;
use tollgate_document::{Document, Located, Node, Problems, parse_span};

use super::limit::parsed;

/// The shortest lease: a shorter one would be renewed for nearly every request.
pub(crate) const MIN_TTL: Span = Span::from_millis(10);

/// The longest lease.
const MAX_TTL: Span = Span::from_secs(10);

/// How long a node may hold units that it took in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseText {
    /// Each request asks the store.
    Off,
    /// A length that is derived from the numbers of the limit.
    Auto,
    /// This long.
    For(Span),
}

/// Reads `lease`.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Located<LeaseText>> {
    match node.text().unwrap_or_default() {
        "off" => return Some(Located::new(LeaseText::Off, node.place)),
        "auto" => return Some(Located::new(LeaseText::Auto, node.place)),
        "on" | "yes" | "true" | "always" => {
            problems
                .error(node.place, format!("`lease` is `off`, `auto`, or between {MIN_TTL} and {MAX_TTL}"))
                .label("did you mean `auto`?");
            return None;
        }
        "no" | "false" | "none" | "never" => {
            problems
                .error(node.place, format!("`lease` is `off`, `auto`, or between {MIN_TTL} and {MAX_TTL}"))
                .label("did you mean `off`?");
            return None;
        }
        _ => {}
    }
    let span = parsed(node, "`lease`", parse_span, problems)?;
    if span.value < MIN_TTL || span.value > MAX_TTL {
        problems
            .error(span.place, format!("a lease is held for {MIN_TTL} to {MAX_TTL}"))
            .label(if span.value < MIN_TTL { "too short" } else { "too long" })
            .help("`auto` chooses by the numbers of the limit; `off` asks the store for each request");
        return None;
    }
    Some(Located::new(LeaseText::For(span.value), span.place))
}

/// Reads `lease` of the store, a section whose other words the server reads.
pub(crate) fn of_store(document: &Document, problems: &mut Problems) -> Option<Located<LeaseText>> {
    read(document.root().get("store")?.get("lease")?, problems)
}

/// Returns whether the store is in the memory of the process.
pub(crate) fn is_in_memory(document: &Document) -> bool {
    document.root().get("store").is_none_or(|store| store.text() == Some("memory"))
}
