//! What works and is probably not meant.
//!
//! One file for each kind, looked for in a policy without mistakes. Their codes and pages are
//! in `crate::trap`.
//!
//! - `cover`: whether one limit sees all that another sees.
//! - `promise`: what limits let through, in numbers that can be relied on.
//! - `expect`: warnings that the file says to expect.
//! - `group`: many alike are told of once.
//!
//! Nothing is said on a hunch: where the arithmetic of two limits cannot be compared exactly,
//! `never_fires` keeps silent.

mod client;
mod cover;
mod descriptors;
mod endpoints;
mod expect;
mod fixed_window;
mod group;
mod idle_missing;
mod ip_narrower;
mod lists;
mod login;
mod never_fires;
mod plans;
mod promise;
mod same_twice;
mod unbounded_key;
mod upstream;

use crate::diagnostic::{Place, Problems};
use crate::document::Document;
use crate::limit::{Limit, Mode};
use crate::trap::Trap;
use crate::written::File;
use crate::written::limit as written;
use crate::written::sections::Client;

/// The most pairs of limits that are compared: past this a file is a machine's, and a start
/// that takes seconds helps nobody.
const MOST_PAIRS: usize = 2_000_000;

/// A limit as it was written and as it works.
#[derive(Clone, Copy)]
struct Seen<'l> {
    written: &'l written::Limit,
    live: &'l Limit,
}

impl Seen<'_> {
    /// Where it says how much.
    fn amount(&self) -> Place {
        self.written.amounts.first().map_or(self.written.place, |it| it.place)
    }

    /// Whether it refuses anybody.
    fn is_enforced(&self) -> bool {
        self.live.mode() == Mode::Enforce
    }

    /// Whether it refuses somebody or may soon.
    fn is_on(&self) -> bool {
        self.live.mode() != Mode::Off
    }

    /// What it grants, in words.
    fn grants(&self) -> String {
        let rules: Vec<_> = self.live.rules().iter().map(|rule| rule.quota.to_string()).collect();
        rules.join(" and ")
    }
}

/// Goes through a file that has no mistakes. `limits` are those of the file, in its order.
pub(super) fn find(
    document: &Document,
    file: &File,
    client: Option<&Client>,
    limits: &[Limit],
    problems: &mut Problems,
) {
    client::look(client, problems);
    lists::look(file, problems);
    plans::look(file, problems);
    for limit in &file.limits {
        idle_missing::look(limit, problems);
        descriptors::look(limit, problems);
    }
    let live = limits.iter().filter(|it| it.candidate_of().is_none());
    let seen: Vec<Seen<'_>> =
        file.limits.iter().zip(live).map(|(written, live)| Seen { written, live }).collect();
    fixed_window::look(&seen, problems);
    let idle = never_fires::look(&seen, problems);
    same_twice::look(&seen, &idle, problems);
    ip_narrower::look(&seen, problems);
    unbounded_key::look(&seen, problems);
    upstream::look(document, &seen, problems);
    login::look(&seen, problems);
    endpoints::look(&seen, file, problems);
    let is_unknown = |trap| trap == Trap::BurstAboveUpstream && upstream::capacity(document).is_none();
    let found = expect::unexpected(file, problems.take_warnings(), is_unknown);
    for warning in group::grouped(found) {
        problems.push(warning);
    }
}

/// All pairs of two limits, each in both orders, as far as is looked.
fn pairs<'s, 'l>(
    seen: &'s [Seen<'l>],
    wanted: impl Fn(&Seen<'l>) -> bool + Copy + 's,
) -> impl Iterator<Item = ((usize, &'s Seen<'l>), (usize, &'s Seen<'l>))> {
    let all = move || seen.iter().enumerate().filter(move |(_, it)| wanted(it));
    let pairs = all().flat_map(move |one| all().map(move |other| (one, other)));
    pairs.filter(|((one, _), (other, _))| one != other).take(MOST_PAIRS)
}
