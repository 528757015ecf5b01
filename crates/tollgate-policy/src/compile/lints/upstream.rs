//! Limits that let through more than the service behind takes: `gateway.capacity`.
//!
//! Not here: reading the section, which is the gateway's. What is wrong with it is told there.

use tollgate_core::{Quota, Rate, Rule};

use super::cover::{counts_together, covers};
use super::promise::{at_once, pace};
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::cost::Cost;
use crate::diagnostic::{Located, Problems};
use crate::document::Document;
use crate::file_format::rate::RateText;
use crate::key::Key;
use crate::limit::Allowance;
use crate::lint::Lint;
use crate::source::KeySource;

const SECOND: u128 = 1_000_000;

/// Who comes: what is granted depends on it.
#[derive(Clone, Copy)]
enum Caller<'l> {
    Anybody,
    OnPlan(&'l str),
    Excepted(&'l Key),
}

/// What is too much.
enum Excess {
    /// So many at once.
    Burst(u64),
    /// For good.
    Pace,
}

pub(super) fn find_lints(document: &Document, linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let Some(capacity) = capacity(document) else { return };
    let rate = capacity.value;
    let takes = u128::from(rate.count) * SECOND / u128::from(rate.period.as_micros());
    let takes = takes.max(1);
    let counted: Vec<&LintedLimit<'_>> = linted.iter().filter(|it| it.is_enforced() && is_rate(it)).collect();
    for limit in counted.iter().take(MAX_COMPARED_PAIRS / counted.len().max(1)) {
        // What is beside it may hold back the same key.
        let beside = counted.iter().copied().filter(|it| {
            std::ptr::eq(*it, *limit) || (counts_together(it.live, limit.live) && covers(it.live, limit.live))
        });
        let beside: Vec<&LintedLimit<'_>> = beside.collect();
        let Some((who, excess)) = first_excess(limit, &beside, rate) else { continue };
        let whose = match limit.live.by() {
            [KeySource::Global] => "all together".to_owned(),
            by => {
                format!("one {} alone", by.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
            }
        };
        let whose = match who {
            Caller::Anybody => whose,
            Caller::OnPlan(plan) => format!("{whose} on plan `{plan}`"),
            Caller::Excepted(_) => format!("{whose} by an override"),
        };
        let (message, label) = match excess {
            Excess::Burst(burst) => (
                "this limit lets through more at once than the service behind takes in a second",
                format!("{burst} at once by {whose}; the service takes {rate}"),
            ),
            Excess::Pace => (
                "this limit lets through more than the service behind takes",
                format!("for good, by {whose}; the service takes {rate}"),
            ),
        };
        let warning = problems
            .warning(Lint::BurstAboveUpstream, limit.amount(), message)
            .label(label)
            .related(capacity.place, "what it takes")
            .help(format!("a smaller burst (`bucket: N/unit, burst {takes}`), or a shorter window beside it: windows: [{takes}/second, ...]"));
        if limit.live.every_rule().any(|rule| matches!(rule.quota, Quota::FixedWindow(_))) {
            warning.help("a fixed window lets through twice its number around its border");
        }
    }
}

/// What the service behind takes, if the file says so in words that can be read.
pub(super) fn capacity(document: &Document) -> Option<Located<Rate>> {
    let node = document.root().get("gateway")?.get("capacity")?;
    let rate = RateText::parse(node.text()?).ok()?.rate();
    (rate.count > 0 && rate.period.as_micros() > 0).then_some(Located::new(rate, node.place))
}

/// Whether it is known how many requests its units are.
fn is_rate(limit: &LintedLimit<'_>) -> bool {
    matches!(limit.live.cost(), Cost::Fixed(_))
        && limit.live.descriptor().is_none()
        && limit.live.rules().iter().all(|rule| !matches!(rule.quota, Quota::Concurrency(_)))
}

/// The first of the limit's own numbers, its plans and its overrides that is too much. Of the
/// overrides, the one with the most.
fn first_excess<'l>(
    limit: &LintedLimit<'l>,
    beside: &[&LintedLimit<'_>],
    takes: Rate,
) -> Option<(Caller<'l>, Excess)> {
    let told = |who: Caller<'l>| Some((who, excess(limit, beside, who, takes)?));
    let plans = limit.written.plans.iter().map(|(name, _)| Caller::OnPlan(&name.value));
    let known = std::iter::once(Caller::Anybody).chain(plans);
    known.into_iter().find_map(told).or_else(|| {
        let keys = limit.live.overrides().take(MAX_COMPARED_PAIRS / beside.len().max(1));
        keys.filter_map(|(key, _)| told(Caller::Excepted(key))).max_by_key(|(_, excess)| match excess {
            Excess::Burst(burst) => *burst,
            Excess::Pace => 0,
        })
    })
}

/// What is too much of what comes through, if all that hold it back let too much pass.
fn excess(
    limit: &LintedLimit<'_>,
    beside: &[&LintedLimit<'_>],
    who: Caller<'_>,
    takes: Rate,
) -> Option<Excess> {
    // Who is let pass without a number is meant to.
    granted(limit, limit, who)?;
    let (count, period) = (u128::from(takes.count), u128::from(takes.period.as_micros()));
    let held = || beside.iter().filter_map(|it| Some((granted(it, limit, who)?, cost(it))));
    let burst = held().map(|(rules, cost)| rules.iter().map(at_once).min().unwrap_or(0) / cost).min()?;
    // One alone is never too many at once.
    if burst > 1 && u128::from(burst) * period > count * SECOND {
        return Some(Excess::Burst(burst));
    }
    let is_faster = |rule: &Rule, cost: u64| {
        pace(rule).is_none_or(|it| {
            let both = |a: u128, b: u64| a.saturating_mul(u128::from(b));
            both(period, it.count) > both(both(count, it.period.as_micros()), cost)
        })
    };
    let all_faster =
        held().all(|(rules, cost)| !rules.is_empty() && rules.iter().all(|it| is_faster(it, cost)));
    all_faster.then_some(Excess::Pace)
}

/// By which rules a limit holds back whoever comes to another one. `None`: not at all. No rules:
/// nothing comes through.
fn granted<'l>(limit: &LintedLimit<'l>, of: &LintedLimit<'_>, who: Caller<'_>) -> Option<&'l [Rule]> {
    let allowance = match who {
        Caller::OnPlan(plan) => limit.live.plan(plan),
        Caller::Excepted(key) if limit.live.by() == of.live.by() => limit.live.override_for(key),
        Caller::Anybody | Caller::Excepted(_) => None,
    };
    match allowance {
        None => Some(limit.live.rules()),
        Some(Allowance::Rules(rules)) => Some(&rules[..]),
        Some(Allowance::Unlimited) => None,
        Some(Allowance::Blocked) => Some(&[]),
    }
}

fn cost(limit: &LintedLimit<'_>) -> u64 {
    if let Cost::Fixed(cost) = limit.live.cost() { (*cost).max(1) } else { 1 }
}
