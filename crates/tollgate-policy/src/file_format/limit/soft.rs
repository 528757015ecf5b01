//! The threshold below a limit: `soft: 80%`, or `soft: {at: 80%, tarpit: 250ms}`.

use tollgate_core::Span;
use tollgate_document::{Kind, Node, Problems, Words};

use super::super::sections::percent;
use crate::limit::{MAX_TARPIT, Soft};

pub(crate) const WORDS: Words = Words {
    section: "`soft`",
    known: &["at", "tarpit"],
    synonyms: &[("at", &["threshold", "percent", "from"]), ("tarpit", &["delay", "wait", "sleep"])],
};

pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Soft> {
    if !matches!(node.kind, Kind::Map(_)) {
        return Some(Soft { at: percent(node, "`soft`", 1..=100, problems)?, tarpit: Span::ZERO });
    }
    let fields = node.fields(&WORDS, problems)?;
    if !fields.mentions("at") {
        problems
            .error(node.place, "`soft` has no threshold")
            .label("`at` is missing")
            .help("a line such as `at: 80%`: the threshold as a share of the allowance");
    }
    let at = fields.get("at").and_then(|it| percent(it, "`at`", 1..=100, problems));
    let tarpit = match fields.get("tarpit") {
        Some(it) => it.span("`tarpit`", Span::from_millis(1)..=MAX_TARPIT, problems)?.value,
        None => Span::ZERO,
    };
    Some(Soft { at: at?, tarpit })
}
