//! The shedder of a node: `node: {inflight: 200, cpu: 85%, delay: 20ms}`.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use tollgate_core::Span;
use tollgate_document::{Fields, Located, Node, Problems, Words};

use super::super::limit;
#[cfg(feature = "schema")]
use super::super::limit::ModeWord;
#[cfg(feature = "schema")]
use super::super::schema::{DurationSchema, NameSchema, PercentSchema, Whole};
use super::super::sections::percent;
use crate::limit::Mode;
use crate::shed::NodeShedSettings;

/// The maximum target of requests in flight.
const MAX_IN_FLIGHT: u64 = 1_000_000;
/// The smallest target of the delay: timers fire up to a millisecond late on an idle node.
const MIN_DELAY: Span = Span::from_millis(5);
const MAX_DELAY: Span = Span::from_secs(60);
/// The range of the speeds.
const MIN_TIME: Span = Span::from_millis(100);
const MAX_TIME: Span = Span::from_secs(600);

/// The shedder of a node. At least one signal has a target; the signal that exceeds its target most decides.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(deny_unknown_fields))]
pub(crate) struct NodeShed {
    /// The target of the number of requests in flight on this node.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Whole>"))]
    inflight: Option<u64>,
    /// The target of the CPU utilization, 1% to 100%: of the process on its cores, and of its cgroup on its quota.
    #[cfg_attr(feature = "schema", schemars(with = "Option<PercentSchema>"))]
    cpu: Option<u8>,
    /// The target of the time that requests wait for a worker, 5ms to 1m.
    #[cfg_attr(feature = "schema", schemars(with = "Option<DurationSchema>"))]
    delay: Option<Span>,
    /// The time in which a class goes from admitted to shed, at 1.25 times a target; a quarter of it at twice a target. Default `2s`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<DurationSchema>"))]
    rise: Option<Span>,
    /// The time in which a class goes from shed to admitted, when the node is idle. Default `5s`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<DurationSchema>"))]
    fall: Option<Span>,
    /// The time without overload before a class is admitted again, and the time between two classes. Default `2s`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<DurationSchema>"))]
    hold: Option<Span>,
    /// A priority class that is never shed, and with it the classes above it. Default: every class may be shed, the first one last.
    #[cfg_attr(feature = "schema", schemars(with = "Option<NameSchema>"))]
    pub(crate) keep: Option<Located<String>>,
    /// `enforce`, `shadow` (counts the requests that would be shed) or `off`. Default `enforce`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<ModeWord>"))]
    mode: Option<Mode>,
}

pub(crate) const WORDS: Words = Words {
    section: "`node`",
    known: &["inflight", "cpu", "delay", "rise", "fall", "hold", "keep", "mode"],
    synonyms: &[
        ("inflight", &["in_flight", "concurrency", "requests", "slots"]),
        ("delay", &["latency", "wait", "lag", "queue"]),
        ("cpu", &["load", "utilization"]),
        ("keep", &["never", "except", "reserve", "exempt"]),
        ("rise", &["up"]),
        ("fall", &["down", "recover", "recovery"]),
        ("hold", &["cooldown"]),
    ],
};

impl NodeShed {
    pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        let fields = node.fields(&WORDS, problems)?;
        if !["inflight", "cpu", "delay"].iter().any(|signal| fields.mentions(signal)) {
            problems
                .error(node.place, "`node` has no signal")
                .label("`inflight`, `cpu` or `delay` is missing")
                .help("a line such as `inflight: 200`, `cpu: 85%` or `delay: 20ms`: above it, the node is overloaded");
        }
        let inflight =
            fields.get("inflight").and_then(|it| it.whole("`inflight`", 1..=MAX_IN_FLIGHT, problems));
        let cpu = fields.get("cpu").and_then(|it| percent(it, "`cpu`", 1..=100, problems));
        let delay = fields.get("delay").and_then(|it| it.span("`delay`", MIN_DELAY..=MAX_DELAY, problems));
        let [rise, fall, hold] = ["rise", "fall", "hold"].map(|word| time(&fields, word, problems));
        slower(rise, fall, problems);
        let keep = fields.get("keep").and_then(|it| it.word("the name of a class", problems));
        let mode = fields.get("mode").and_then(|it| limit::mode(it, problems));
        let value = |span: Option<Located<Span>>| span.map(|it| it.value);
        Some(Self {
            inflight: inflight.map(|it| it.value),
            cpu,
            delay: value(delay),
            rise: value(rise),
            fall: value(fall),
            hold: value(hold),
            keep: keep.map(|it| it.map(str::to_owned)),
            mode: mode.map(|it| it.value),
        })
    }

    /// Returns the settings, with defaults. `kept_classes` is the number of classes that are never
    /// shed.
    pub(crate) fn settings(&self, kept_classes: u8) -> NodeShedSettings {
        let default = NodeShedSettings::default();
        let rise = self.rise.unwrap_or(default.rise);
        NodeShedSettings {
            in_flight: self.inflight,
            cpu: self.cpu,
            delay: self.delay,
            rise,
            fall: self.fall.unwrap_or(default.fall.max(rise)),
            hold: self.hold.unwrap_or(default.hold),
            kept_classes,
            mode: self.mode.unwrap_or(default.mode),
            is_frozen: false,
        }
    }
}

fn time(fields: &Fields<'_>, word: &str, problems: &mut Problems) -> Option<Located<Span>> {
    fields.get(word)?.span(&format!("`{word}`"), MIN_TIME..=MAX_TIME, problems)
}

/// Reports a level that would fall faster than it rises.
fn slower(rise: Option<Located<Span>>, fall: Option<Located<Span>>, problems: &mut Problems) {
    let rises_in = rise.map_or(NodeShedSettings::default().rise, |it| it.value);
    if let Some(fall) = fall.filter(|fall| fall.value < rises_in) {
        problems
            .error(fall.place, format!("`fall` is shorter than `rise`, which is {}", rises_in.human()))
            .label("a class that returns faster than it is shed overloads the node again");
    }
}
