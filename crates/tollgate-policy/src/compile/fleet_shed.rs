//! The fleet shedder: a limit of all requests, with a maximum for each priority class.
//!
//! All classes count in one state, so one key is enough on every store: slots have the same meaning for
//! any number of slots, and so has a shared bucket for any capacity.
//!
//! Rule of the reserves: a reserve belongs to its class and to all more important classes. The maximum
//! of a class is the whole amount without the reserves of more important classes.

use tollgate_core::{Concurrency, Quota, QuotaError, Rule, RuleId};
use tollgate_document::{Place, Problems, hint, short};

use super::limit::{KeySettings, LimitDraft, draft};
use crate::file_format::File;
use crate::file_format::regions::RegionsText;
use crate::file_format::shed::fleet::{Fleet, Reserve};
use crate::limit::Limit;
use crate::priority::PriorityClass;

/// The name of the fleet shedder in answers, metrics and records.
pub(super) const FLEET: &str = "shed.fleet";

/// A checked fleet shedder.
pub(super) struct FleetDraft<'f> {
    limit: LimitDraft<'f>,
    /// The reserve of each class, by rank.
    reserves: Vec<u64>,
}

/// Checks the fleet shedder. Returns `None` after reporting a problem, and without a fleet shedder.
pub(super) fn fleet<'f>(
    file: &'f File,
    classes: &[PriorityClass],
    settings: &KeySettings,
    problems: &mut Problems,
) -> Option<FleetDraft<'f>> {
    let fleet = file.shed.as_ref()?.fleet.as_ref()?;
    if let Some(name) = file.limits.iter().filter_map(|it| it.name.as_ref()).find(|it| it.value == FLEET) {
        problems
            .error(name.place, format!("`{FLEET}` is the name of the fleet shedder"))
            .label("give this limit another name")
            .related(fleet.limit.place, "the fleet shedder");
    }
    let limit = draft(&fleet.limit, settings, problems)?;
    let reserves = reserves(fleet, limit.quota()?.capacity(), classes, problems)?;
    Some(FleetDraft { limit, reserves })
}

/// Returns the reserve of each class, by rank.
fn reserves(
    fleet: &Fleet,
    amount: u64,
    classes: &[PriorityClass],
    problems: &mut Problems,
) -> Option<Vec<u64>> {
    let mut reserves = vec![0; classes.len()];
    let mut is_valid = true;
    for (name, reserve) in &fleet.reserve {
        let Some(class) = classes.iter().find(|class| *class.name == *name.value) else {
            let names = classes.iter().map(PriorityClass::name);
            problems.error(name.place, format!("no class is called `{}`", short(&name.value))).help(
                if classes.is_empty() {
                    "`priorities` names the classes, the most important first".to_owned()
                } else {
                    hint(&name.value, "classes", names)
                },
            );
            is_valid = false;
            continue;
        };
        if usize::from(class.rank) + 1 == classes.len() {
            problems
                .error(name.place, format!("a reserve for `{}` has no effect", class.name))
                .label("the least important class")
                .help("a reserve belongs to its class and to all more important ones: here, to all");
            is_valid = false;
        }
        // Rounded up: a reserve is never smaller than the file says.
        reserves[usize::from(class.rank)] = match reserve.value {
            Reserve::Units(units) => units,
            Reserve::Percent(percent) => {
                let share = (u128::from(amount) * u128::from(percent)).div_ceil(100);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        };
    }
    let total = reserves.iter().fold(0, |sum: u64, one| sum.saturating_add(*one));
    if is_valid && total >= amount {
        let place = fleet.reserve.first().map_or(fleet.limit.place, |(name, _)| name.place);
        leaves_nothing(place, total, amount, problems);
        is_valid = false;
    }
    is_valid.then_some(reserves)
}

fn leaves_nothing(place: Place, total: u64, amount: u64, problems: &mut Problems) {
    problems
        .error(place, format!("reserves of {total} leave nothing of {amount} for the least important class"))
        .label("smaller reserves")
        .help("a class that is never to be admitted is refused by `deny`");
}

impl FleetDraft<'_> {
    /// Builds the limit.
    pub(super) fn finish(self) -> Limit {
        let Self { limit, reserves } = self;
        let mut limit = limit.finish(FLEET, None, None, &RegionsText::Absent);
        let definition = limit.definition_mut();
        definition.sheds = true;
        for rule in &mut definition.rules {
            *rule = of_amount(&rule.quota, rule.quota.capacity());
        }
        let mut taken = 0;
        for reserve in reserves {
            let class =
                definition.rules.first().map(|rule| of_amount(&rule.quota, rule.quota.capacity() - taken));
            definition.class_rules.extend(class);
            taken += reserve;
        }
        limit
    }
}

/// Returns the rule with this amount, on the state that all classes share.
fn of_amount(quota: &Quota, amount: u64) -> Rule {
    // These cannot fail: the amount is at least one and at most that of a valid quota.
    let resized: Result<Quota, QuotaError> = match quota {
        Quota::Bucket(bucket) => bucket.with_burst(amount).map(|it| it.shared().into()),
        Quota::Concurrency(slots) => {
            Concurrency::new(u32::try_from(amount).unwrap_or(u32::MAX), slots.ttl()).map(Into::into)
        }
        other => Ok(other.clone()),
    };
    let quota = resized.unwrap_or_else(|_| quota.clone());
    let id = RuleId::of([FLEET, &quota.identity()]);
    Rule { name: FLEET.into(), id, quota, before: None, lease: None, far: None }
}
