//! A learned number of slots: `slots: adaptive`, or `slots: {adaptive: {min: 10, max: 1000}}`.

use tollgate_document::{Kind, Located, Node, Problems, Words, hint};

use crate::adaptive::{AdaptiveAlgorithm, AdaptiveSlots};

const WORD: &str = "adaptive";

const SLOTS: Words = Words { section: "`slots`", known: &[WORD], synonyms: &[(WORD, &["auto", "learn"])] };

const ADAPTIVE: Words = Words {
    section: "`adaptive`",
    known: &["min", "max", "algorithm"],
    synonyms: &[
        ("min", &["min_limit", "minimum", "min_concurrency"]),
        ("max", &["max_limit", "maximum", "max_concurrency"]),
        ("algorithm", &["limit_algorithm", "type"]),
    ],
};

const ALGORITHMS: [(&str, AdaptiveAlgorithm); 3] = [
    ("gradient", AdaptiveAlgorithm::Gradient),
    ("aimd", AdaptiveAlgorithm::Aimd),
    ("vegas", AdaptiveAlgorithm::Vegas),
];

/// The most slots of a limit, fixed or learned.
pub(super) const MAX_SLOTS: u64 = 65_536;

/// Whether the slots are to be learned, rightly written or not.
pub(super) fn is_adaptive(node: &Node) -> bool {
    let is_word = |text: &str| text.starts_with(|it: char| it.is_ascii_alphabetic());
    node.text().is_some_and(is_word) || matches!(node.kind, Kind::Map(_))
}

/// Reads the bounds. The `ttl` of the limit is not known here.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Located<AdaptiveSlots>> {
    let mut slots = AdaptiveSlots::default();
    if node.text() == Some(WORD) {
        return Some(Located::new(slots, node.place));
    }
    if let Some(text) = node.text() {
        problems
            .error(node.place, format!("`slots` cannot be {}", node.describe()))
            .label("a number, or `adaptive`")
            .help(hint(text, "words", [WORD]));
        return None;
    }
    let fields = node.fields(&SLOTS, problems)?;
    let Some(adaptive) = fields.get(WORD) else {
        problems
            .error(node.place, "`slots` is a number or `adaptive`")
            .label("`adaptive` is missing")
            .help("`slots: 100`, `slots: adaptive`, or `slots: {adaptive: {min: 10, max: 1000}}`");
        return None;
    };
    let fields = adaptive.fields(&ADAPTIVE, problems)?;
    let number = |word: &str, problems: &mut Problems| match fields.get(word) {
        None => Some(None),
        Some(node) => node.whole(&format!("`{word}`"), 1..=MAX_SLOTS, problems).map(Some),
    };
    let (min, max) = (number("min", problems), number("max", problems));
    let algorithm = match fields.get("algorithm") {
        None => Some(AdaptiveAlgorithm::default()),
        Some(node) => node.choice("`algorithm`", &ALGORITHMS, problems).map(|it| it.value),
    };
    // A word that is present and invalid has been reported.
    let (min, max) = (min?, max?);
    slots.algorithm = algorithm?;
    let whole = |it: Located<u64>| u32::try_from(it.value).unwrap_or(u32::MAX);
    if let Some(max) = max {
        slots.max = whole(max);
        slots.min = slots.min.min(slots.max);
    }
    if let Some(written) = min {
        slots.min = whole(written);
        match max {
            None => slots.max = slots.max.max(slots.min),
            Some(max) if slots.min > slots.max => {
                problems
                    .error(written.place, "`min` is greater than `max`")
                    .label(format!("at most {}", slots.max))
                    .related(max.place, "`max` here");
                return None;
            }
            Some(_) => {}
        }
    }
    Some(Located::new(slots, node.place))
}
