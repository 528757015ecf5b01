//! A log, put to all algorithms and rates at once: it is read only once.
//!
//! This is how exact each algorithm is on real traffic. What was answered then does not matter: clients are not asked to come back.

use tollgate::Timestamp;

use super::contest::{Contest, RequestSource, seconds};
use super::contestant::{Contestant, ContestantError};
use super::report::Round;
use crate::Entry;
use crate::epoch::StoreEpoch;

/// A log that is being worked on.
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
    /// Puts these side by side, with room for so many keys each. Those of one rate are reported together.
    pub const fn new(contestants: Vec<Contestant>, keys: usize) -> Self {
        let (begin, now) = (Timestamp::EPOCH, Timestamp::EPOCH);
        Self { contests: Vec::new(), waiting: contestants, keys, begin, now, epoch: None, uncounted: 0 }
    }

    /// The next line. Times never go back: one that is earlier counts at the time of the one before.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), ContestantError> {
        self.now = self.now.max(entry.at());
        if !self.waiting.is_empty() {
            // Series begin with the log.
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

    /// What was found out: a round for each rate, in the order in which they were given.
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
                    "{}: {evictions} keys gave way to others in a store for {} keys, so its numbers are not exact; \
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
