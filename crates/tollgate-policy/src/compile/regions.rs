//! Limits that regions share: the share of each region.
//!
//! A share is a rule of its own, with an id that names its region. Every node can therefore name the
//! rules of all regions, and lease units of them from the stores there. All leases of one key need one
//! `ttl` (`tollgate_core::LeaseRequest`), so it is the same for all regions, whether a node leases from
//! its own store or borrows from another.

use std::sync::Arc;

use tollgate_core::{FarRule, Quota, Rule, RuleId, Span};
use tollgate_document::{Located, Place, Problems};

use super::amount::{Amount, Grant};
use super::lease::{self, AUTO_PART, not_leasable};
use crate::file_format::lease::{LeaseText, MIN_TTL};
use crate::file_format::limit::Limit;
use crate::file_format::regions::{Regions, RegionsText};
use crate::limit::Scope;

/// The longest time for which units are borrowed, if no lease says otherwise.
const MAX_BORROWED_TTL: Span = Span::from_secs(10);

/// Returns the regions that share a limit.
pub(super) fn sharing<'r>(limit: &Limit, regions: &'r RegionsText) -> Option<&'r Regions> {
    let is_global = limit.scope.is_some_and(|it| it.value == Scope::Global);
    regions.valid().filter(|_| is_global)
}

/// Reports a `scope` that the limit cannot have.
pub(super) fn fits(limit: &Limit, amount: &Amount<'_>, regions: &RegionsText, problems: &mut Problems) {
    let Some(Located { value: Scope::Global, place }) = limit.scope else { return };
    if let RegionsText::Absent = regions {
        problems
            .error(place, "`scope: global` needs `regions`")
            .label("no regions share this limit")
            .help("name them: `regions: {here: eu, shares: {eu: 60%, us: 40%}}`");
        return;
    }
    if let Some(why) = not_leasable(limit, &amount.base) {
        problems
            .error(place, "this limit cannot be split between regions")
            .label(why)
            .help("leave `scope` out: each region then has the whole limit for itself");
        return;
    }
    let Some(regions) = sharing(limit, regions) else { return };
    let own = limit.amounts.first().map_or(limit.place, |it| it.place);
    every_region_has_units(&amount.base, own, regions, problems);
    for (_, text) in limit.plans.iter().chain(&limit.overrides) {
        // A mistake in it is reported elsewhere.
        if let Some(Grant::Quotas(quotas)) = amount.granted(text, &mut Problems::default()) {
            every_region_has_units(&quotas, text.place, regions, problems);
        }
    }
}

/// Reports amounts that are too small to be split.
fn every_region_has_units(quotas: &[Quota], place: Place, regions: &Regions, problems: &mut Problems) {
    let units = |quota: &Quota, share: u8| u128::from(quota.capacity()) * u128::from(share) / 100;
    for quota in quotas {
        let smallest = regions.shares.iter().min_by_key(|(_, share)| *share);
        let Some((region, share)) = smallest.filter(|(_, share)| units(quota, *share) == 0) else { continue };
        let fewest = 100_u64.div_ceil((*share).into());
        problems
            .error(place, format!("region `{region}` has no unit of this limit"))
            .label(format!("{share}% of {}", quota.capacity()))
            .help(format!("at least {fewest} units, a larger share, or no `scope`"));
        return;
    }
}

/// Returns the smallest share of a quota, with the name of its region.
pub(super) fn smallest<'r>(quotas: &[Quota], regions: &'r Regions) -> Option<(Vec<Quota>, &'r str)> {
    let (name, share) = regions.shares.iter().min_by_key(|(_, share)| *share)?;
    Some((quotas.iter().map(|quota| quota.share((*share).into(), 100)).collect(), name))
}

/// Returns the rule of this region: its share of the quota. `words` identify the whole rule.
pub(super) fn split(
    name: &str,
    words: [&str; 4],
    quota: &Quota,
    regions: &Regions,
    lease: Option<LeaseText>,
) -> Rule {
    let shares: Vec<(&str, Quota)> =
        regions.shares.iter().map(|(name, share)| (&**name, quota.share((*share).into(), 100))).collect();
    let lease = lease.and_then(|it| common_ttl(&shares, |quota| lease::ttl(it, quota)));
    let rule = |(region, quota): &(&str, Quota), lease: Option<Span>| Rule {
        name: name.into(),
        id: RuleId::of(words.into_iter().chain(["region", region, &quota.identity()])),
        quota: quota.clone(),
        before: None,
        lease,
        far: None,
    };
    let borrowed = lease.or_else(|| common_ttl(&shares, borrowed_ttl)).filter(|_| regions.borrows);
    let others = || shares.iter().enumerate().filter(|(at, _)| *at != regions.here);
    let far = borrowed.map(|ttl| -> Arc<[FarRule]> {
        others().map(|(_, it)| FarRule { region: it.0.into(), rule: rule(it, Some(ttl)) }).collect()
    });
    Rule { far, ..rule(&shares[regions.here], lease) }
}

/// Returns the `ttl` that suits the shares of all regions.
fn common_ttl(shares: &[(&str, Quota)], ttl: impl Fn(&Quota) -> Option<Span>) -> Option<Span> {
    let each: Option<Vec<_>> = shares.iter().map(|(_, quota)| ttl(quota)).collect();
    each?.into_iter().min()
}

/// Returns how long units may be borrowed, without a lease of the limit.
fn borrowed_ttl(quota: &Quota) -> Option<Span> {
    let ttl = Span::from_micros(quota.period().as_micros() / AUTO_PART).min(MAX_BORROWED_TTL);
    Some(ttl).filter(|&ttl| quota.is_leasable() && ttl >= MIN_TTL)
}
