//! Notes on the limits of a replay's accuracy.
//!
//! Not here: notes on the log (`super`), and on settings outside the policy (`tollgate-cli`).

use tollgate::policy::Mode;
use tollgate::{Limit, Policy};

use super::Settings;
use super::tally::{Tally, has_slots, is_unreachable, reported_limits};

/// The most limits that a note names.
const MAX_NAMED_LIMITS: usize = 5;

/// Input of the notes.
pub(super) struct Facts<'r> {
    pub(super) policy: &'r Policy,
    pub(super) settings: &'r Settings,
    pub(super) tallies: &'r [Tally],
    pub(super) requests: u64,
    pub(super) without_client: u64,
    pub(super) evictions: u64,
    /// Capacity of the store, in keys.
    pub(super) stored: u64,
}

impl Facts<'_> {
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.requests == 0 {
            return notes;
        }
        if self.without_client == self.requests {
            notes.push(
                "the log has no client addresses: limits by ip count all requests as one client; name the field with \
                 `--field ip=NAME`"
                    .to_owned(),
            );
        } else if self.without_client > 0 {
            notes.push(format!(
                "{} requests have no client address: they are counted as one client",
                self.without_client
            ));
        }
        let (mut with_slots, mut unreachable, mut never_checked) = (Vec::new(), Vec::new(), Vec::new());
        for limit in reported_limits(self.policy, self.settings).filter(|limit| limit.mode() != Mode::Off) {
            let Some(tally) = self.tallies.get(limit.place()) else { continue };
            if has_slots(limit) {
                with_slots.push(limit.name());
            } else if is_unreachable(limit) {
                unreachable.push(limit.name());
            } else if tally.checked == 0 {
                never_checked.push(limit.name());
            } else if tally.without_key > 0 {
                notes.push(without_key(limit, tally));
            }
        }
        for (names, why) in [
            (
                with_slots,
                "left out: a log does not say when requests ended, so how many ran at once is not known",
            ),
            (unreachable, "left out: a log has no descriptors of a proxy"),
            (never_checked, "never asked: it covers no request of the log"),
        ] {
            notes.extend(named(&names).map(|names| format!("{names}: {why}")));
        }
        self.costs(&mut notes);
        if self.evictions > 0 {
            notes.push(format!(
                "{} keys were evicted from a store of {}: counts are approximate, and strict; a larger `max_keys` in \
                 the policy makes them exact",
                self.evictions, self.stored
            ));
        }
        notes
    }

    /// Adds notes on limits whose costs come from the log.
    fn costs(&self, notes: &mut Vec<String>) {
        let (mut charged, mut settled) = (Vec::new(), Vec::new());
        for limit in reported_limits(self.policy, self.settings) {
            let Some(tally) = self.tallies.get(limit.place()) else { continue };
            if tally.cost_known > 0 {
                charged.push(limit.name());
            }
            if tally.settled > 0 {
                settled.push(limit.name());
            }
            let unknown = tally.checked.saturating_sub(tally.cost_known + tally.settled + tally.blocked);
            if limit.settle().is_some() && unknown > 0 {
                notes.push(format!(
                    "limit `{}` settles costs after the response, and {unknown} of {} requests have no cost in the \
                     log: those are charged the estimate; name the field with `--field cost=NAME`",
                    limit.name(),
                    tally.checked
                ));
            }
        }
        notes.extend(named(&charged).map(|names| format!("{names}: charged the cost that the log states")));
        notes.extend(named(&settled).map(|names| {
            format!(
                "{names}: charged the estimate first, and the cost of the log once a request is admitted, at its own \
                 time; exactness is not computed; other limits, without `settle`, keep their own cost"
            )
        }));
    }
}

/// Joins names of limits, at most [`MAX_NAMED_LIMITS`].
fn named(names: &[&str]) -> Option<String> {
    let quoted: Vec<_> = names.iter().take(MAX_NAMED_LIMITS).map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(MAX_NAMED_LIMITS);
    match (names.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("limit {}", quoted.join(", "))),
        (_, 0) => Some(format!("limits {}", quoted.join(", "))),
        (_, more) => Some(format!("limits {} and {more} more", quoted.join(", "))),
    }
}

fn without_key(limit: &Limit, tally: &Tally) -> String {
    let by: Vec<_> = limit.by().iter().map(ToString::to_string).collect();
    let (name, by) = (limit.name(), by.join(", "));
    let (without, checked) = (tally.without_key, tally.checked);
    let first = by.split(',').next().unwrap_or_default();
    format!(
        "limit `{name}`: {without} of {checked} requests have no `{by}` in the log, so `missing` decided their key; name its \
         field with `--field {first}=NAME`"
    )
}
