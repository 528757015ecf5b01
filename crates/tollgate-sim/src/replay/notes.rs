//! What a reader should know before believing the numbers of a replay.
//!
//! Not here: what the log itself was like (`super`), and what the command knows of the settings beside a policy (`tollgate-cli`).

use tollgate::policy::Mode;
use tollgate::{Limit, Policy};

use super::Settings;
use super::tally::{Tally, has_slots, is_unreachable, told};

/// How many limits a note names.
const MAX_NAMED_LIMITS: usize = 5;

/// What notes are made of.
pub(super) struct Facts<'r> {
    pub(super) policy: &'r Policy,
    pub(super) settings: &'r Settings,
    pub(super) tallies: &'r [Tally],
    pub(super) requests: u64,
    pub(super) without_client: u64,
    pub(super) evictions: u64,
    /// For how many keys the store had room.
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
        let (mut with_slots, mut unreachable, mut never_asked) = (Vec::new(), Vec::new(), Vec::new());
        for limit in told(self.policy, self.settings).filter(|limit| limit.mode() != Mode::Off) {
            let Some(tally) = self.tallies.get(limit.place()) else { continue };
            if has_slots(limit) {
                with_slots.push(limit.name());
            } else if is_unreachable(limit) {
                unreachable.push(limit.name());
            } else if tally.checked == 0 {
                never_asked.push(limit.name());
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
            (never_asked, "never asked: it covers no request of the log"),
        ] {
            notes.extend(named(&names).map(|names| format!("{names}: {why}")));
        }
        self.costs(&mut notes);
        if self.evictions > 0 {
            notes.push(format!(
                "{} keys gave way to others in a store of {}: counts are approximate, and strict; a larger `max_keys` in \
                 the policy makes them exact",
                self.evictions, self.stored
            ));
        }
        notes
    }

    /// Whose costs are the log's.
    fn costs(&self, notes: &mut Vec<String>) {
        let (mut charged, mut settled) = (Vec::new(), Vec::new());
        for limit in told(self.policy, self.settings) {
            let Some(tally) = self.tallies.get(limit.place()) else { continue };
            if tally.told > 0 {
                charged.push(limit.name());
            }
            if tally.settled > 0 {
                settled.push(limit.name());
            }
            let unknown = tally.checked.saturating_sub(tally.told + tally.settled + tally.blocked);
            if limit.settle().is_some() && unknown > 0 {
                notes.push(format!(
                    "limit `{}` learns from the answer what a request cost, and of {unknown} of {} requests the log does not \
                     say: those are counted at what is taken beforehand; name the field with `--field cost=NAME`",
                    limit.name(),
                    tally.checked
                ));
            }
        }
        notes.extend(
            named(&charged).map(|names| format!("{names}: charged what the log says a request cost")),
        );
        notes.extend(named(&settled).map(|names| {
            format!(
                "{names}: charged what is taken beforehand, and what the log says once a request is admitted, at its own \
                 time; how exact that is is not told; limits without `settle` beside keep their own cost"
            )
        }));
    }
}

/// Names of limits, the first few of many.
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
        "limit `{name}`: {without} of {checked} requests have no `{by}` in the log, so that `missing` decided who they are; name its \
         field with `--field {first}=NAME`"
    )
}
