//! Runs a log against one or several policies, in virtual time.
//!
//! Each policy has its own limiter, the same one that serves requests, and all policies see the log in one pass:
//!
//! ```text
//! log ──► run: the limiter decides ──► tally of each limit ──► population (who), heat (when), curve (what if), distance (how exact)
//!            └──► compare: the fate under another policy
//! ```
//!
//! Memory does not grow with the log: keys are tracked up to a bound and then sampled (`crate::sample`), top lists
//! are sketches, and time cells widen.
//!
//! Not here: reading logs (`crate::log`), rendering the report (`tollgate-cli`, `crate::page`).

mod amount;
mod candidates;
mod compare;
mod curve;
mod endpoint;
mod heat;
mod notes;
mod population;
mod report;
mod run;
mod suggest;
mod tally;
#[cfg(test)]
mod tests;

use std::io;

use tollgate::{Policy, Timestamp};

pub use report::{
    ChangedRequests, Comparison, Curve, CurvePoint, Exactness, Example, Heat, Keys, LimitReport,
    PolicyReport, Proposal, Report, Suggestion, TopKey,
};
pub use suggest::{Share, Suggest};

use self::compare::Fates;
use self::run::Run;
use self::tally::Room;
use crate::Entry;
use crate::log::{Requests, Tally};

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Compute how many requests other numbers would have refused.
    pub curves: bool,
    /// Compute how far each limit is from an exact log.
    pub exactness: bool,
    /// Which numbers to propose.
    pub suggest: Suggest,
    /// Length of the lists of keys, clients and endpoints.
    pub top: usize,
    /// Report only this limit. All limits decide nevertheless.
    pub limit: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { curves: true, exactness: true, suggest: Suggest::default(), top: 10, limit: None }
    }
}

impl Settings {
    /// Whether the report includes a limit.
    fn is_about(&self, name: &str) -> bool {
        self.limit.as_deref().is_none_or(|limit| limit == name)
    }
}

/// A log replayed against one or several policies.
///
/// ```
/// # use tollgate::Policy;
/// # use tollgate_sim::Entry;
/// # use tollgate_sim::log::Tally;
/// # use tollgate_sim::replay::{Replay, Settings};
/// let policy = Policy::parse("limits: [{name: api, by: ip, bucket: 2/minute}]")?;
/// let mut replay = Replay::new(vec![("policy.yaml".to_owned(), policy)], Settings::default());
/// for second in [0, 1, 2, 40] {
///     let mut entry = Entry::new((1_700_000_000 + second) * 1_000_000, "GET", "/");
///     entry.client = Some([203, 0, 113, 9].into());
///     replay.request(&entry);
/// }
/// let report = replay.finish(&Tally::default());
/// assert_eq!((report.policy.requests, report.policy.refused), (4, 1));
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub struct Replay {
    settings: Settings,
    /// Policies whose run has not started: the first request sets the clock.
    waiting: Vec<(String, Policy)>,
    runs: Vec<Run>,
    /// Decisions that differ from the first policy's, for the second policy and each one after it.
    fates: Vec<Fates>,
    span: Option<(Timestamp, Timestamp)>,
}

impl Replay {
    /// Creates a replay of named policies. The first one is the reference for comparisons.
    pub fn new(policies: Vec<(String, Policy)>, settings: Settings) -> Self {
        let fates = policies.iter().skip(1).map(|_| Fates::default()).collect();
        Self { settings, waiting: policies, runs: Vec::new(), fates, span: None }
    }

    /// Runs a request against all policies. Requests come in the order of their times; a late one counts at the time
    /// of the one before.
    pub fn request(&mut self, entry: &Entry) {
        let at = entry.at();
        self.begin(at);
        let (_, last) = self.span.get_or_insert((at, at));
        *last = at.max(*last);
        let Some((first, others)) = self.runs.split_first_mut() else { return };
        let before = first.request(entry);
        for (run, fates) in others.iter_mut().zip(&mut self.fates) {
            let after = run.request(entry);
            if before.is_admitted() != after.is_admitted() {
                fates.note(entry, (first, before), (run, after));
            }
        }
    }

    fn begin(&mut self, at: Timestamp) {
        let waiting = std::mem::take(&mut self.waiting);
        let room = Room::among(waiting.iter().map(|(_, policy)| policy), &self.settings);
        self.runs.extend(
            waiting.into_iter().map(|(name, policy)| Run::new(name, policy, &self.settings, room, at)),
        );
    }

    /// Runs all requests of a source against all policies.
    pub fn run(&mut self, requests: &mut (impl Requests + ?Sized)) -> io::Result<()> {
        let mut entry = Entry::default();
        while requests.next(&mut entry)? {
            self.request(&entry);
        }
        Ok(())
    }

    /// Returns the report.
    pub fn finish(mut self, tally: &Tally) -> Report {
        self.begin(Timestamp::EPOCH);
        let several = self.runs.len() > 1;
        let mut report = Report {
            skipped_lines: tally.skipped,
            late_lines: tally.late,
            from: self.span.map(|(first, _)| moment(first)),
            to: self.span.map(|(_, last)| moment(last)),
            ..Report::default()
        };
        let mut fates = self.fates.into_iter();
        for (place, run) in self.runs.into_iter().enumerate() {
            let name = run.name.clone();
            let (policy, notes) = run.finish();
            let about = |note: String| if several { format!("{name}: {note}") } else { note };
            report.notes.extend(notes.into_iter().map(about));
            if place == 0 {
                report.policy = policy;
            } else if let Some(fates) = fates.next() {
                report.compared.push(fates.finish(policy, self.settings.top));
            }
        }
        report
    }
}

/// Formats a time for reports.
fn moment(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| format!("{micros}us"), |at| at.to_string())
}
