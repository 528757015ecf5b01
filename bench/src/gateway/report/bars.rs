//! What was promised of the gateway, and what came of it.
//!
//! A ratio is taken within each round, between neighbours in time, and of the
//! rounds the median counts: a machine that slows down for a while slows both.
//! A round in which other programs were at work says nothing, and is left out.

use super::Row;
use crate::gateway::contestant::Duty;
use crate::gateway::idle::Weight;
use crate::gateway::trial::Sample;
use crate::report::{Bar, median};

pub(super) fn all(rows: &[Row], idle: &[Weight]) -> Vec<Bar> {
    let speed = |duty: Duty, peer| ratio(rows, (duty, "tollgate"), (duty, peer), |it| it.per_second);
    let cost = ratio(rows, (Duty::Admit, "tollgate"), (Duty::Off, "tollgate"), |it| it.cpu_us);
    let watching =
        ratio(rows, (Duty::Admit, "tollgate-all-on"), (Duty::Admit, "tollgate-unwatched"), |it| it.cpu_us);
    let ours = idle.iter().find(|weight| weight.subject == "tollgate");
    vec![
        Bar::at_least(0.8, "admitted: tollgate / nginx", speed(Duty::Admit, "nginx")),
        Bar::at_least(1.8, "admitted: tollgate / envoy", speed(Duty::Admit, "envoy")),
        Bar::at_least(0.8, "refused: tollgate / nginx", speed(Duty::Refuse, "nginx")),
        Bar::at_least(1.8, "refused: tollgate / envoy", speed(Duty::Refuse, "envoy")),
        Bar::at_most(1.05, "CPU per request: three limits / limiting off", cost),
        Bar::at_most(1.15, "CPU per admitted request: all on / observe off", watching),
        Bar::at_most(200.0, "MiB with 10,000 connections that never asked", ours.map(|it| it.silent)),
        Bar::at_most(200.0, "MiB with 10,000 connections that asked once", ours.map(|it| it.asked)),
    ]
}

/// A case, and who in it.
type Entry = (Duty, &'static str);

fn ratio(rows: &[Row], over: Entry, under: Entry, number: fn(&Sample) -> f64) -> Option<f64> {
    let find =
        |(duty, subject): Entry| rows.iter().find(|it| it.case == duty.name() && it.subject == subject);
    let rounds = find(over)?.rounds.iter().zip(&find(under)?.rounds);
    let rounds = rounds.filter(|(over, under)| !over.is_disturbed() && !under.is_disturbed());
    Some(median(rounds.map(|(over, under)| number(over) / number(under)))).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // The machine is half as fast in the second round: for both.
        let rows = [
            row(Duty::Admit, "tollgate", [90.0, 45.0, 99.0]),
            row(Duty::Admit, "nginx", [100.0, 50.0, 100.0]),
        ];
        let bars = all(&rows, &[]);
        assert!((bars[0].got.unwrap() - 0.9).abs() < 1e-9);
        assert_eq!(bars[0].met, Some(true));
        assert!(bars[1..].iter().all(|bar| bar.met.is_none()), "nothing else was measured");
    }

    #[test]
    fn a_bar_is_missed_on_its_wrong_side() {
        let rows = [
            row(Duty::Off, "tollgate", [1.0; 3]),
            row(Duty::Admit, "tollgate", [1.06; 3]),
            row(Duty::Admit, "tollgate-all-on", [1.15; 3]),
            row(Duty::Admit, "tollgate-unwatched", [1.0; 3]),
        ];
        let weight = Weight { subject: "tollgate", alone: 10.0, silent: 100.0, asked: 201.0 };
        let met: Vec<_> = all(&rows, &[weight]).iter().map(|bar| bar.met).collect();
        assert_eq!(met, [None, None, None, None, Some(false), Some(true), Some(true), Some(false)]);
    }

    #[test]
    fn a_round_with_others_at_work_says_nothing() {
        let mut rows = [row(Duty::Admit, "tollgate", [9.0, 5.0, 9.0]), row(Duty::Admit, "nginx", [10.0; 3])];
        rows[0].rounds[0].others = 0.5;
        rows[1].rounds[2].waited = 0.5;
        assert!((all(&rows, &[])[0].got.unwrap() - 0.5).abs() < 1e-9);
        rows[1].rounds[1].waited = 0.5;
        assert_eq!(all(&rows, &[])[0].met, None);
    }

    fn row(duty: Duty, subject: &'static str, numbers: [f64; 3]) -> Row {
        let sample = |number| Sample {
            requests: 1,
            per_second: number,
            cpu_us: number,
            system_us: 0.0,
            p50_us: 1.0,
            p99_us: 1.0,
            busy: 1.0,
            waited: 0.0,
            others: 0.0,
            instructions: None,
            answer_bytes: 1,
        };
        Row::new(duty, subject, numbers.map(sample).into())
    }
}
