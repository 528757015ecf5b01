//! The queue of a limit: `queue: {length: 50, wait: 2s, free: 5}`.

use tollgate_core::{Queue, Span};
use tollgate_document::{Kind, Located, Node, Problems, Words};

pub(crate) const WORDS: Words = Words {
    section: "`queue`",
    known: &["length", "wait", "free"],
    synonyms: &[
        ("length", &["burst", "size", "max", "depth", "capacity"]),
        ("wait", &["max_wait", "timeout", "max_delay"]),
        ("free", &["delay", "nodelay"]),
    ],
};

/// The maximum number of places, and of free places.
const MAX_PLACES: u64 = 1_000_000_000;

/// The longest wait of a queue.
const MAX_WAIT: Span = Span::from_days(1);

/// The queue of a limit, as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueText {
    pub(crate) length: Located<u64>,
    pub(crate) wait: Option<Located<Span>>,
    pub(crate) free: Option<Located<u64>>,
}

impl QueueText {
    pub(crate) fn queue(&self) -> Queue {
        let Self { length, wait, free } = self;
        Queue { length: length.value, wait: wait.map(|it| it.value), free: free.map_or(0, |it| it.value) }
    }
}

pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Located<QueueText>> {
    if !matches!(node.kind, Kind::Map(_)) {
        let length = node.text().and_then(tollgate_document::whole_number).unwrap_or(50);
        problems
            .error(node.place, format!("`queue` cannot be {}", node.describe()))
            .label(format!("did you mean `{{length: {length}}}`?"))
            .help("`wait` bounds the wait, and `free` is the number of places that do not wait");
        return None;
    }
    let fields = node.fields(&WORDS, problems)?;
    if !fields.mentions("length") {
        problems
            .error(node.place, "`queue` has no length")
            .label("`length` is missing")
            .help("a line such as `length: 50`: the number of requests above the rate that may wait");
    }
    let number = |word: &'static str, least: u64, problems: &mut Problems| {
        fields.get(word).map(|it| it.whole(&format!("`{word}`"), least..=MAX_PLACES, problems))
    };
    let length = number("length", 1, problems).flatten();
    let wait =
        fields.get("wait").map(|it| it.span("`queue.wait`", Span::from_millis(1)..=MAX_WAIT, problems));
    let free = number("free", 0, problems);
    // A word that is present and invalid has been reported.
    let (wait, free) =
        (wait.map_or(Some(None), |it| it.map(Some))?, free.map_or(Some(None), |it| it.map(Some))?);
    Some(Located::new(QueueText { length: length?, wait, free }, node.place))
}
