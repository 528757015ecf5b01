//! Limits that admit more than the capacity of the upstream service: `gateway.capacity`.
//!
//! The gateway reads the section and reports its mistakes.

use tollgate_core::{Quota, Rate, Rule};
use tollgate_document::{Document, Located, Problems, RateText};

use super::cover::{counts_together, covers};
use super::promise::{max_burst, pace};
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::cost::Cost;
use crate::key::Key;
use crate::limit::Allowance;
use crate::lint::Lint;
use crate::source::KeySource;

const SECOND: u128 = 1_000_000;

/// The kind of caller, which determines the amount.
#[derive(Clone, Copy)]
enum Caller<'l> {
    Any,
    OnPlan(&'l str),
    Override(&'l Key),
}

/// The way in which an amount exceeds the capacity.
enum Excess {
    /// A burst of this many units.
    Burst(u64),
    /// The long-term rate.
    Rate,
}

pub(super) fn find_lints(document: &Document, linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let Some(capacity) = capacity(document) else { return };
    let rate = capacity.value;
    let takes = u128::from(rate.count) * SECOND / u128::from(rate.period.as_micros());
    let takes = takes.max(1);
    let counted: Vec<&LintedLimit<'_>> = linted.iter().filter(|it| it.is_enforced() && is_rate(it)).collect();
    for limit in counted.iter().take(MAX_COMPARED_PAIRS / counted.len().max(1)) {
        // Other limits may hold back the same key.
        let beside = counted.iter().copied().filter(|it| {
            std::ptr::eq(*it, *limit) || (counts_together(it.live, limit.live) && covers(it.live, limit.live))
        });
        let beside: Vec<&LintedLimit<'_>> = beside.collect();
        let Some((who, excess)) = first_excess(limit, &beside, rate) else { continue };
        let whose = match limit.live.by() {
            [KeySource::Global] => "all callers together".to_owned(),
            by => {
                format!("one {} alone", by.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
            }
        };
        let whose = match who {
            Caller::Any => whose,
            Caller::OnPlan(plan) => format!("{whose} on plan `{plan}`"),
            Caller::Override(_) => format!("{whose} by an override"),
        };
        let (message, label) = match excess {
            Excess::Burst(burst) => (
                "this limit admits a larger burst than the upstream service handles in a second",
                format!("{burst} at once by {whose}; the service handles {rate}"),
            ),
            Excess::Rate => (
                "this limit admits more than the upstream service handles",
                format!("permanently, by {whose}; the service handles {rate}"),
            ),
        };
        let warning = problems
            .warning(Lint::BurstAboveUpstream, limit.amount(), message)
            .label(label)
            .related(capacity.place, "its capacity")
            .help(format!("a smaller burst (`bucket: N/unit, burst {takes}`), or a shorter window beside it: windows: [{takes}/second, ...]"));
        if limit.live.every_rule().any(|rule| matches!(rule.quota, Quota::FixedWindow(_))) {
            warning.help("a fixed window admits up to twice its number around its border");
        }
    }
}

/// Returns the capacity of the upstream service, if the file states a valid one.
pub(super) fn capacity(document: &Document) -> Option<Located<Rate>> {
    let node = document.root().get("gateway")?.get("capacity")?;
    let rate = RateText::parse(node.text()?).ok()?.rate();
    (rate.count > 0 && rate.period.as_micros() > 0).then_some(Located::new(rate, node.place))
}

/// Whether the number of requests per unit is known.
fn is_rate(limit: &LintedLimit<'_>) -> bool {
    matches!(limit.live.cost(), Cost::Fixed(_))
        && limit.live.descriptor().is_none()
        && limit.live.rules().iter().all(|rule| !matches!(rule.quota, Quota::Concurrency(_)))
}

/// Returns the first excess among the limit's own amount, its plans and its overrides. Of the
/// overrides, the largest is taken.
fn first_excess<'l>(
    limit: &LintedLimit<'l>,
    beside: &[&LintedLimit<'_>],
    takes: Rate,
) -> Option<(Caller<'l>, Excess)> {
    let excess_of = |who: Caller<'l>| Some((who, excess(limit, beside, who, takes)?));
    let plans = limit.written.plans.iter().map(|(name, _)| Caller::OnPlan(&name.value));
    let known = std::iter::once(Caller::Any).chain(plans);
    known.into_iter().find_map(excess_of).or_else(|| {
        let keys = limit.live.overrides().take(MAX_COMPARED_PAIRS / beside.len().max(1));
        keys.filter_map(|(key, _)| excess_of(Caller::Override(key))).max_by_key(|(_, excess)| match excess {
            Excess::Burst(burst) => *burst,
            Excess::Rate => 0,
        })
    })
}

/// Returns the excess of a caller, if every limit that applies to it admits too much.
fn excess(
    limit: &LintedLimit<'_>,
    beside: &[&LintedLimit<'_>],
    who: Caller<'_>,
    takes: Rate,
) -> Option<Excess> {
    // A caller without a number is unlimited on purpose.
    granted(limit, limit, who)?;
    let (count, period) = (u128::from(takes.count), u128::from(takes.period.as_micros()));
    let held = || beside.iter().filter_map(|it| Some((granted(it, limit, who)?, cost(it))));
    let burst = held().map(|(rules, cost)| rules.iter().map(max_burst).min().unwrap_or(0) / cost).min()?;
    // A single request is never a burst.
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
    all_faster.then_some(Excess::Rate)
}

/// Returns the rules by which `limit` holds back a caller of `of`. `None`: it does not apply. An
/// empty slice: it admits nothing.
fn granted<'l>(limit: &LintedLimit<'l>, of: &LintedLimit<'_>, who: Caller<'_>) -> Option<&'l [Rule]> {
    let allowance = match who {
        Caller::OnPlan(plan) => limit.live.plan(plan),
        Caller::Override(key) if limit.live.by() == of.live.by() => limit.live.override_for(key),
        Caller::Any | Caller::Override(_) => None,
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
