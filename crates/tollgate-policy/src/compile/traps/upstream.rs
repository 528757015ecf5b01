//! Limits that let through more than the service behind takes: `gateway.capacity`.
//!
//! Not here: reading the section, which is the gateway's. What is wrong with it is told there.

use tollgate_core::{Quota, Rate};

use super::cover::{counts_together, covers};
use super::promise::{a_second, at_once};
use super::{MOST_PAIRS, Seen};
use crate::cost::Cost;
use crate::diagnostic::{Located, Problems};
use crate::document::Document;
use crate::source::KeySource;
use crate::trap::Trap;
use crate::written::rate::RateText;

pub(super) fn look(document: &Document, seen: &[Seen<'_>], problems: &mut Problems) {
    let Some(capacity) = capacity(document) else { return };
    let rate = capacity.value;
    let takes = u128::from(rate.count) * 1_000_000 / u128::from(rate.period.as_micros().max(1));
    let takes = u64::try_from(takes).unwrap_or(u64::MAX).max(1);
    let counted: Vec<&Seen<'_>> = seen.iter().filter(|it| it.is_enforced() && is_rate(it)).collect();
    for limit in counted.iter().take(MOST_PAIRS / counted.len().max(1)) {
        // What is beside it may hold back the same key.
        let beside = || {
            counted.iter().filter(|it| {
                std::ptr::eq(**it, *limit)
                    || (counts_together(it.live, limit.live) && covers(it.live, limit.live))
            })
        };
        let burst = beside().map(|it| burst(it)).min();
        let pace = beside().filter_map(|it| pace(it)).min();
        let whose = match limit.live.by() {
            [KeySource::Global] => "all together".to_owned(),
            by => {
                format!("one {} alone", by.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
            }
        };
        let (message, label) = match (burst, pace) {
            (Some(burst), _) if burst > takes => (
                "this limit lets through more at once than the service behind takes in a second",
                format!("{burst} at once by {whose}; the service takes {takes} a second"),
            ),
            (_, Some(pace)) if pace > takes => (
                "this limit lets through more than the service behind takes",
                format!("{pace} a second by {whose}; the service takes {takes}"),
            ),
            _ => continue,
        };
        problems
            .warning(Trap::BurstAboveUpstream, limit.amount(), message)
            .label(label)
            .related(capacity.place, "what it takes")
            .help(format!("a smaller burst (`bucket: N/unit, burst {takes}`), or a shorter window beside it: windows: [{takes}/second, ...]"));
    }
}

/// What the service behind takes, if the file says so in words that can be read.
fn capacity(document: &Document) -> Option<Located<Rate>> {
    let node = document.root().get("gateway")?.get("capacity")?;
    let rate = RateText::parse(node.text()?).ok()?.rate();
    (rate.count > 0 && rate.period.as_micros() > 0).then_some(Located::new(rate, node.place))
}

/// Whether it is known how many requests its units are.
fn is_rate(limit: &Seen<'_>) -> bool {
    matches!(limit.live.cost(), Cost::Fixed(_))
        && limit.live.descriptor().is_none()
        && limit.live.rules().iter().all(|rule| !matches!(rule.quota, Quota::Concurrency(_)))
}

fn burst(limit: &Seen<'_>) -> u64 {
    at_once(limit.live.rules()) / cost(limit)
}

fn pace(limit: &Seen<'_>) -> Option<u64> {
    Some(a_second(limit.live.rules())? / cost(limit))
}

fn cost(limit: &Seen<'_>) -> u64 {
    if let Cost::Fixed(cost) = limit.live.cost() { (*cost).max(1) } else { 1 }
}
