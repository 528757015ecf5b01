//! What works and is probably not meant.
//!
//! One file for each kind, looked for in a policy without mistakes. Their codes and pages are
//! in `crate::lint`.
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
use crate::file_format::File;
use crate::file_format::limit as file_format;
use crate::file_format::sections::Client;
use crate::limit::{Limit, Mode};
use crate::lint::Lint;

/// The most pairs of limits that are compared: past this a file is a machine's, and a start
/// that takes seconds helps nobody.
const MAX_COMPARED_PAIRS: usize = 2_000_000;

/// A limit as it was written and as it works.
#[derive(Clone, Copy)]
struct LintedLimit<'l> {
    written: &'l file_format::Limit,
    live: &'l Limit,
}

impl LintedLimit<'_> {
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
    client::find_lints(client, problems);
    lists::find_lints(file, problems);
    plans::find_lints(file, problems);
    for limit in &file.limits {
        idle_missing::find_lints(limit, problems);
        descriptors::find_lints(limit, problems);
    }
    let live = limits.iter().filter(|it| it.candidate_of().is_none());
    let linted: Vec<LintedLimit<'_>> =
        file.limits.iter().zip(live).map(|(written, live)| LintedLimit { written, live }).collect();
    fixed_window::find_lints(&linted, problems);
    let idle = never_fires::find_lints(&linted, problems);
    same_twice::find_lints(&linted, &idle, problems);
    ip_narrower::find_lints(&linted, problems);
    unbounded_key::find_lints(&linted, problems);
    upstream::find_lints(document, &linted, problems);
    login::find_lints(&linted, problems);
    endpoints::find_lints(&linted, file, problems);
    let is_unknown = |lint| lint == Lint::BurstAboveUpstream && upstream::capacity(document).is_none();
    let found = expect::unexpected(file, problems.take_warnings(), is_unknown);
    for warning in group::grouped(found) {
        problems.push(warning);
    }
}

/// All pairs of two limits, each in both orders, as far as is looked.
fn pairs<'s, 'l>(
    linted: &'s [LintedLimit<'l>],
    wanted: impl Fn(&LintedLimit<'l>) -> bool + Copy + 's,
) -> impl Iterator<Item = ((usize, &'s LintedLimit<'l>), (usize, &'s LintedLimit<'l>))> {
    let all = move || linted.iter().enumerate().filter(move |(_, it)| wanted(it));
    let pairs = all().flat_map(move |one| all().map(move |other| (one, other)));
    pairs.filter(|((one, _), (other, _))| one != other).take(MAX_COMPARED_PAIRS)
}
