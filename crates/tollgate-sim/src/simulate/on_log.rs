//! Runs a log against all algorithms and rates in one pass.
//!
//! It measures how exact each algorithm is on real traffic. The logged responses are ignored, and clients do not
//! retry.

use tollgate::Timestamp;

use super::contest::{Contest, RequestSource, seconds};
use super::contestant::{Contestant, ContestantError};
use super::report::Round;
use crate::Entry;
use crate::epoch::StoreEpoch;

/// A simulation on a log.
pub struct OnLog {
    contests: Vec<Contest>,
    waiting: Vec<Contestant>,
    keys: usize,
    begin: Timestamp,
    now: Timestamp,
    epoch: Option<StoreEpoch>,
    uncounted: u64,
}

impl OnLog {
    /// Creates a simulation with room for this many keys per algorithm. Algorithms of the same rate are reported
    /// together.
    pub const fn new(contestants: Vec<Contestant>, keys: usize) -> Self {
        let (begin, now) = (Timestamp::EPOCH, Timestamp::EPOCH);
        Self { contests: Vec::new(), waiting: contestants, keys, begin, now, epoch: None, uncounted: 0 }
    }

    /// Runs a line against all algorithms. Times never go back: an earlier line counts at the time of the line
    /// before.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), ContestantError> {
        self.now = self.now.max(entry.at());
        if !self.waiting.is_empty() {
            // Series begin at the first line.
            self.begin = self.now;
            self.epoch = Some(StoreEpoch::new(self.now, self.waiting.iter().map(|it| &it.quota)));
            for contestant in std::mem::take(&mut self.waiting) {
                self.contests.push(Contest::on_log(contestant, self.keys, self.begin)?);
            }
        }
        if self.epoch.as_mut().is_some_and(|epoch| epoch.is_over(self.now)) {
            for contest in &mut self.contests {
                contest.renew(self.keys, self.now)?;
            }
        }
        let mut is_counted = false;
        for contest in &mut self.contests {
            let asking = RequestSource { at: self.now, client: 0, is_first: true, first: self.now };
            is_counted |= contest.ask(entry, asking).is_some();
        }
        self.uncounted += u64::from(!is_counted);
        Ok(())
    }

    /// Returns the results of each rate, in the order of the arguments.
    pub fn rounds(self) -> Vec<Round> {
        let mut rounds: Vec<Round> = Vec::new();
        for contest in &self.contests {
            let rate = contest.contestant().rate;
            let text = rate.to_string();
            let known = rounds.iter().position(|round| round.rate == text);
            let at = known.unwrap_or_else(|| {
                rounds.push(Round {
                    rate: text,
                    limit: rate.count,
                    window_s: seconds(rate.period),
                    traffic: None,
                    algorithms: Vec::new(),
                    notes: self.notes(),
                    from_s: seconds(self.begin.since(Timestamp::EPOCH)),
                    step_s: seconds(contest.series().step()),
                });
                rounds.len() - 1
            });
            let evictions = contest.evictions();
            if evictions > 0 {
                rounds[at].notes.push(format!(
                    "{}: {evictions} keys were evicted from a store for {} keys, so its numbers are not exact; \
                     `--max-keys` makes room",
                    contest.contestant().choice.word(),
                    self.keys
                ));
            }
            rounds[at].algorithms.push(contest.report());
        }
        rounds
    }

    fn notes(&self) -> Vec<String> {
        let uncounted = self.uncounted;
        if uncounted == 0 {
            return Vec::new();
        }
        vec![format!("{uncounted} requests have no key to count by, and are left out")]
    }
}
