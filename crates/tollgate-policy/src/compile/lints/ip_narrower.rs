//! A limit by address that is narrower than a limit by user on the same requests.
//!
//! The users of an office, a campus or a mobile network share one address. The limit by address
//! refuses them for the requests of others, long before they reach their own limit.

use tollgate_core::{Rule, Span};
use tollgate_document::Problems;

use super::cover::covers;
use super::promise::{about, is_slower, longest};
use super::{LintedLimit, pairs};
use crate::limit::Allowance;
use crate::lint::Lint;
use crate::source::KeySource;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let mut reported = Vec::new();
    let by_caller = |it: &LintedLimit<'_>| {
        it.is_enforced() && matches!(it.live.by(), [only] if is_address_or_caller(only))
    };
    for ((at, address), (_, caller)) in pairs(linted, by_caller) {
        let is_pair = address.live.by() == [KeySource::Ip] && caller.live.by() != [KeySource::Ip];
        let same_units = address.live.cost() == caller.live.cost();
        if !is_pair || !same_units || reported.contains(&at) || !covers(address.live, caller.live) {
            continue;
        }
        let Some((whose, rules)) = granted_more(address, caller) else { continue };
        reported.push(at);
        let by = &caller.live.by()[0];
        let stretch = longest(rules);
        let time = Span::from_micros(stretch);
        let (few, many) = (about(address.live.rules(), stretch), about(rules, stretch));
        let numbers = match (few, many) {
            (Some(few), Some(many)) if few < many => {
                format!("{few} in {time} for all of an address, where one {by} alone may spend {many}{whose}")
            }
            _ => format!("less for all of an address than for one {by} alone{whose}"),
        };
        problems
            .warning(Lint::IpNarrowerThanUser, address.amount(), "an address is granted less than one of its users")
            .label(numbers)
            .related(caller.amount(), format!("{} by {by}", shown(rules)))
            .help("an office shares one address: grant it what several users may spend, or limit by ip only what comes without a user");
    }
}

fn is_address_or_caller(part: &KeySource) -> bool {
    matches!(
        part,
        KeySource::Ip | KeySource::User | KeySource::ApiKey | KeySource::Tenant | KeySource::Claim(_)
    )
}

/// Returns the amount of `caller` that exceeds the amount of `address`: its own, or that of a plan.
fn granted_more<'c>(address: &LintedLimit<'_>, caller: &LintedLimit<'c>) -> Option<(String, &'c [Rule])> {
    let is_more = |rules: &[Rule], plan: Option<&str>| {
        let of_address = match plan.and_then(|it| address.live.plan(it)) {
            None => address.live.rules(),
            Some(Allowance::Rules(rules)) => &rules[..],
            Some(Allowance::Unlimited | Allowance::Blocked) => return false,
        };
        let stretch = longest(rules);
        let fewer =
            matches!((about(of_address, stretch), about(rules, stretch)), (Some(a), Some(b)) if a < b);
        fewer || is_slower(of_address, rules)
    };
    if is_more(caller.live.rules(), None) {
        return Some((String::new(), caller.live.rules()));
    }
    caller.written.plans.iter().find_map(|(name, _)| match caller.live.plan(&name.value) {
        Some(Allowance::Rules(rules)) if is_more(rules, Some(&name.value)) => {
            Some((format!(" on plan `{}`", name.value), &rules[..]))
        }
        _ => None,
    })
}

fn shown(rules: &[Rule]) -> String {
    rules.iter().map(|rule| rule.quota.to_string()).collect::<Vec<_>>().join(" and ")
}
