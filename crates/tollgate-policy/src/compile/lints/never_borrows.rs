//! Limits that are split between regions and fill too fast to borrow.

use tollgate_core::{Rule, Span};
use tollgate_document::Problems;

use super::LintedLimit;
use crate::file_format::regions::RegionsText;
use crate::lint::Lint;

/// The shortest time for which units can be borrowed: two round trips between distant regions.
const MIN_BORROWED_TTL: Span = Span::from_millis(200);

pub(super) fn find_lints(regions: &RegionsText, linted: &[LintedLimit<'_>], problems: &mut Problems) {
    if !regions.valid().is_some_and(|it| it.borrows) {
        return;
    }
    for limit in linted.iter().filter(|it| it.is_on() && it.live.region_share().is_some()) {
        let Some(scope) = limit.written.scope else { continue };
        let Some(rule) = limit.live.rules().iter().find(|rule| never_borrows(rule)) else { continue };
        problems
            .warning(Lint::NeverBorrows, scope.place, "this limit is split between regions and borrows nothing")
            .label(format!("full again in {}", rule.quota.period().human()))
            .help("units are borrowed for a fortieth of that, which has to be two round trips: use a larger burst");
    }
}

fn never_borrows(rule: &Rule) -> bool {
    let ttl = rule.far.iter().flat_map(|it| it.iter()).find_map(|it| it.rule.lease);
    ttl.is_none_or(|ttl| ttl < MIN_BORROWED_TTL)
}
