//! The rounds of one server in one case, and ratios between two of them.
//!
//! A ratio is taken within each round, between neighbours in time, and of the
//! rounds the median counts: a machine that slows down for a while slows both.
//! A round in which other programs were at work says nothing, and is left out.

use serde::Serialize;

use super::Sample;
use crate::report::median;

/// Below this share of a core, a contestant was held back by the load.
const MIN_BUSY_SHARE: f64 = 0.95;

/// One contestant in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it was put to.
    pub case: &'static str,
    /// Who.
    pub subject: &'static str,
    /// Of each number, the median of the rounds that nobody disturbed; of all, if there are none.
    pub median: Sample,
    /// Each round.
    pub rounds: Vec<Sample>,
}

/// A case, and who in it.
pub type Entry = (&'static str, &'static str);

impl Row {
    /// A row, from its rounds.
    pub fn new((case, subject): Entry, rounds: Vec<Sample>) -> Self {
        let calm: Vec<Sample> = rounds.iter().filter(|it| !it.is_disturbed()).copied().collect();
        let median = Sample::median(if calm.is_empty() { &rounds } else { &calm });
        Self { case, subject, median, rounds }
    }

    /// What a reader should know of it.
    pub fn remark(&self) -> Option<String> {
        let Self { case, subject, median, .. } = self;
        if median.is_disturbed() {
            return Some(format!(
                "{case}, {subject}: the machine was busy: others used {:.2} cores and it waited {:.0} % of the time \
                 for its own; its numbers mean little and count for no bar, run it again",
                median.others,
                median.waited * 100.0
            ));
        }
        (median.busy < MIN_BUSY_SHARE).then(|| {
            format!(
                "{case}, {subject}: it used {:.0} % of its core, so the load held it back and it could do more; \
                 compare CPU per request",
                median.busy * 100.0
            )
        })
    }
}

/// How many times one row's number is another's; nothing if either was not measured in calm.
pub fn ratio(rows: &[Row], over: Entry, under: Entry, number: fn(&Sample) -> f64) -> Option<f64> {
    let find = |(case, subject): Entry| rows.iter().find(|it| it.case == case && it.subject == subject);
    let rounds = find(over)?.rounds.iter().zip(&find(under)?.rounds);
    let rounds = rounds.filter(|(over, under)| !over.is_disturbed() && !under.is_disturbed());
    Some(median(rounds.map(|(over, under)| number(over) / number(under)))).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{Row, Sample, ratio};

    const OURS: super::Entry = ("admitted", "tollgate");
    const THEIRS: super::Entry = ("admitted", "nginx");

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // The machine is half as fast in the second round: for both.
        let rows = [row(OURS, [90.0, 45.0, 99.0]), row(THEIRS, [100.0, 50.0, 100.0])];
        check(&rows, Some(0.9));
        assert_eq!(ratio(&rows, OURS, ("refused", "nginx"), |it| it.per_second), None, "not measured");
    }

    #[test]
    fn a_round_with_others_at_work_says_nothing() {
        let mut rows = [row(OURS, [9.0, 5.0, 9.0]), row(THEIRS, [10.0; 3])];
        rows[0].rounds[0].others = 0.5;
        rows[1].rounds[2].waited = 0.5;
        check(&rows, Some(0.5));
        rows[1].rounds[1].waited = 0.5;
        check(&rows, None);
    }

    #[test]
    fn a_reader_is_told_what_a_number_is_worth() {
        assert_eq!(row(OURS, [1.0; 3]).remark(), None);
        let mut held_back = row(OURS, [1.0; 3]);
        held_back.median.busy = 0.5;
        assert!(held_back.remark().is_some_and(|it| it.contains("held it back")));
        held_back.median.waited = 0.5;
        assert!(held_back.remark().is_some_and(|it| it.contains("the machine was busy")));
    }

    #[track_caller]
    fn check(rows: &[Row], expected: Option<f64>) {
        let got = ratio(rows, OURS, THEIRS, |it| it.per_second);
        assert_eq!(got.map(f64::to_bits), expected.map(f64::to_bits));
    }

    fn row(entry: super::Entry, numbers: [f64; 3]) -> Row {
        let sample = |number| Sample { per_second: number, busy: 1.0, ..Sample::default() };
        Row::new(entry, numbers.map(sample).into())
    }
}
