//! The rounds of one server in one case, and ratios between rows.
//!
//! A ratio is taken within each round, between measurements that are close in time, and the median of the rounds
//! counts: a machine that slows down for a while slows both. Disturbed rounds are left out.

use serde::Serialize;

use super::Sample;
use crate::report::median;

/// Below this share of a core, the load was the bottleneck.
const MIN_BUSY_SHARE: f64 = 0.95;

/// One contestant in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub case: &'static str,
    /// Name of the contestant.
    pub subject: &'static str,
    /// Medians of the undisturbed rounds; of all rounds if there are none.
    pub median: Sample,
    /// Each round.
    pub rounds: Vec<Sample>,
}

/// A case and a contestant.
pub type Entry = (&'static str, &'static str);

impl Row {
    /// Creates a row from its rounds.
    pub fn new((case, subject): Entry, rounds: Vec<Sample>) -> Self {
        let calm: Vec<Sample> = rounds.iter().filter(|it| !it.is_disturbed()).copied().collect();
        let median = Sample::median(if calm.is_empty() { &rounds } else { &calm });
        Self { case, subject, median, rounds }
    }

    /// Returns a remark for readers of the table, if needed.
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

/// Returns the ratio of a number between two rows; `None` if either has no undisturbed round.
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
        // The machine is half as fast in the second round, for both.
        let rows = [row(OURS, [90.0, 45.0, 99.0]), row(THEIRS, [100.0, 50.0, 100.0])];
        check(&rows, Some(0.9));
        assert_eq!(ratio(&rows, OURS, ("refused", "nginx"), |it| it.per_second), None, "not measured");
    }

    #[test]
    fn disturbed_rounds_are_ignored() {
        let mut rows = [row(OURS, [9.0, 5.0, 9.0]), row(THEIRS, [10.0; 3])];
        rows[0].rounds[0].others = 0.5;
        rows[1].rounds[2].waited = 0.5;
        check(&rows, Some(0.5));
        rows[1].rounds[1].waited = 0.5;
        check(&rows, None);
    }

    #[test]
    fn remarks_explain_unreliable_numbers() {
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
