//! Replay: a log put to one or several policies, in virtual time.
//!
//! Each policy has a limiter of its own, the one that serves, and all see the log in one pass:
//!
//! ```text
//! log ──► run: the limiter decides ──► tally of each limit ──► population (who), heat (when), curve (what if), distance (how exact)
//!            └──► compare: the fate under another policy
//! ```
//!
//! Nothing grows with the log: keys are followed up to a bound and then sampled (`crate::sample`), lists of the worst are sketches, cells of
//! time widen.
//!
//! Not here: reading logs (`crate::log`), wording the report (`tollgate-cli`, `crate::page`).

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

/// What is to be found out besides the totals.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What other numbers would have refused.
    pub curves: bool,
    /// How far each limit is from an exact log.
    pub exactness: bool,
    /// Numbers to propose.
    pub suggest: Suggest,
    /// How many keys, clients and endpoints the lists name.
    pub top: usize,
    /// Tell of this limit only. All limits decide nevertheless.
    pub limit: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { curves: true, exactness: true, suggest: Suggest::default(), top: 10, limit: None }
    }
}

impl Settings {
    /// Whether a limit is told of.
    fn is_about(&self, name: &str) -> bool {
        self.limit.as_deref().is_none_or(|limit| limit == name)
    }
}

/// A log put to one or several policies.
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
    /// Until the first request says when it is.
    waiting: Vec<(String, Policy)>,
    runs: Vec<Run>,
    /// Of the second policy, the third and so on.
    fates: Vec<Fates>,
    span: Option<(Timestamp, Timestamp)>,
}

impl Replay {
    /// The policies and what they are called; the others are compared with the first.
    pub fn new(policies: Vec<(String, Policy)>, settings: Settings) -> Self {
        let fates = policies.iter().skip(1).map(|_| Fates::default()).collect();
        Self { settings, waiting: policies, runs: Vec::new(), fates, span: None }
    }

    /// Puts a request to all policies. They come in the order of their times; one that is late counts at the time of the one before.
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

    /// Puts all requests to all policies.
    pub fn run(&mut self, requests: &mut (impl Requests + ?Sized)) -> io::Result<()> {
        let mut entry = Entry::default();
        while requests.next(&mut entry)? {
            self.request(&entry);
        }
        Ok(())
    }

    /// What became of them.
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

/// A time as reports write it.
fn moment(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| format!("{micros}us"), |at| at.to_string())
}
