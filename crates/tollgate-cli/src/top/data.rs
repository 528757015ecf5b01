//! Responses of the API, sanitized for the screen.
//!
//! Any text may come from a caller of the gateway, so it is sanitized and truncated while it is parsed.

use serde::{Deserialize, Deserializer};
use tollgate_api::Window;
use tollgate_document::sanitize::printable;

use super::number;
use crate::client::tagged;

pub(super) type Overview = tollgate_api::Overview<Text, Lines>;
pub(super) type Fleet = tollgate_api::Fleet<Text>;
pub(super) type Stats = tollgate_api::Stats<Text>;
pub(super) type Limit = tollgate_api::LimitStats<Text>;
pub(super) type Top = tollgate_api::Top<Text>;
pub(super) type Key = tollgate_api::TopKey<Text>;
pub(super) type Route = tollgate_api::HotRoute<Text>;
pub(super) type Decisions = tollgate_api::Decisions<Text>;
pub(super) type Decision = tollgate_api::DecisionLine<Text>;

/// The maximum length of a text in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The maximum number of lines in a list.
const MAX_LINES: usize = 100;

/// Sanitized text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text(pub(super) String);

impl Text {
    fn of(text: &str) -> Self {
        let cut: String = text.chars().take(MAX_TEXT_CHARS).collect();
        Self(printable(&cut))
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| Self::of(&text))
    }
}

/// Sanitized text of several lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines(Vec<Text>);

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(Self(text.lines().filter(|line| !line.is_empty()).take(MAX_LINES).map(Text::of).collect()))
    }
}

/// Returns a text that may be absent.
pub(super) fn or_empty(text: Option<&Text>) -> &str {
    text.map_or("", |text| &text.0)
}

/// Returns the counts of the last five minutes, over the same window as the other lists.
pub(super) fn window(overview: &Overview) -> Window {
    let sum = |values: &[u64]| values.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
    overview.window.clone().unwrap_or_else(|| Window {
        allowed: sum(&overview.series.allowed),
        refused: sum(&overview.series.refused),
        ..Window::default()
    })
}

/// Returns the lines of the error of the last reload.
pub(super) fn reload_error(overview: &Overview) -> &[Text] {
    overview.policy.reload_error.as_ref().map_or(&[], |lines| &lines.0)
}

/// Returns the refusals of a limit, including blocked callers.
pub(super) fn refused(limit: &Limit) -> u64 {
    limit.limited.unwrap_or(0).saturating_add(limit.blocked.unwrap_or(0))
}

/// Whether the numbers of a limit are known.
pub(super) fn is_counted(limit: &Limit) -> bool {
    limit.limited.is_some()
}

/// Returns a key, with its tag if it is shortened.
pub(super) fn shown(key: &Text, tag: &Text) -> String {
    tagged(&key.0, &tag.0)
}

/// Returns the lower bound of the requests of a route, marked if there may be more.
pub(super) fn requests(route: &Route) -> String {
    let least = route.requests_at_least.unwrap_or(route.requests);
    format!("{}{}", if least < route.requests { "~" } else { "" }, number(least))
}

/// Returns the limit of a decision, with the tag of the key if it is shortened.
pub(super) fn limit_and_tag(decision: &Decision) -> String {
    let limit = or_empty(decision.limit.as_ref());
    let key = or_empty(decision.key.as_ref());
    match tagged(key, or_empty(decision.tag.as_ref())).rsplit_once(" #") {
        Some((_, digits)) if key.contains('…') => format!("{limit} #{digits}"),
        _ => limit.to_owned(),
    }
}
