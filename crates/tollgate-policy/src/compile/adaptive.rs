//! Checks of limits that learn their number of slots.

use tollgate_document::{Place, Problems};

use crate::file_format::limit::{AllowanceText, Limit};

/// Reports options that have no meaning for a learned number of slots.
pub(super) fn options_belong(limit: &Limit, slots: Place, problems: &mut Problems) -> bool {
    let is_amount = |text: &AllowanceText| !matches!(text, AllowanceText::Unlimited | AllowanceText::Blocked);
    let amounts = limit.plans.iter().chain(&limit.overrides);
    let amount = amounts.map(|(_, text)| text).find(|text| is_amount(&text.value));
    let candidate = limit.candidate.as_ref().map(|it| it.place);
    let foreign = [
        (
            amount.map(|it| it.place),
            "an amount",
            "every key learns its own number; `unlimited` and `blocked` are possible",
        ),
        (candidate, "`candidate`", "a second limit with `mode: shadow` learns beside this one"),
        (
            limit.queue.as_ref().map(|it| it.place),
            "`queue`",
            "a request that exceeds a learned limit is refused at once: a queue before an overloaded service \
             only adds latency",
        ),
        (
            limit.on_outage.map(|it| it.place),
            "`on_outage`",
            "each node counts its own requests in flight, and the store is not asked",
        ),
    ];
    let mut all_belong = true;
    for (place, what, why) in foreign.into_iter().filter_map(|(place, what, why)| Some((place?, what, why))) {
        all_belong = false;
        problems
            .error(place, format!("{what} does not belong to a learned number of slots"))
            .label("remove this, or write a number of slots")
            .related(slots, "learned here")
            .help(why);
    }
    all_belong
}
