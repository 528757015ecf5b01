//! A limit on buckets that is smaller than the bursts of a few proxies.

use tollgate_document::Problems;

use super::LintedLimit;
use crate::lint::Lint;

/// The smallest burst that can be divided over a usual number of proxies.
const MIN_BURST: u64 = 16;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    for limit in linted.iter().filter(|it| it.written.rlqs.is_some() && it.is_on()) {
        let Some(burst) = limit.live.rules().first().map(|it| it.quota.capacity()) else { continue };
        if burst < MIN_BURST {
            problems
                .warning(
                    Lint::QuotaTooSmall,
                    limit.amount(),
                    format!("{burst} requests cannot be divided over more than {burst} proxies"),
                )
                .label("the token bucket of each proxy holds at least one request")
                .help("count small limits in Tollgate instead: `descriptor` with the rate limit service");
        }
    }
}
