//! Targets of the gateway, and results.

use crate::gateway::contestant::Duty;
use crate::gateway::idle::Weight;
use crate::report::Bar;
use crate::sample::{Row, Sample, ratio};

pub(super) fn all(rows: &[Row], idle: &[Weight]) -> Vec<Bar> {
    let of = |over: (Duty, _), under: (Duty, _), number: fn(&Sample) -> f64| {
        ratio(rows, (over.0.name(), over.1), (under.0.name(), under.1), number)
    };
    // Upstream and load share a core, and hold some contestants back. CPU is not affected by that.
    let thrift = |duty: Duty, peer| of((duty, peer), (duty, "tollgate"), |it| it.cpu_us);
    let cost = of((Duty::Admit, "tollgate"), (Duty::Off, "tollgate"), |it| it.cpu_us);
    let watching = of((Duty::Admit, "tollgate-all-on"), (Duty::Admit, "tollgate-unwatched"), |it| it.cpu_us);
    let shed = |duty| of((duty, "tollgate"), (Duty::Refuse, "tollgate"), |it| it.cpu_us);
    let ours = idle.iter().find(|weight| weight.subject == "tollgate");
    vec![
        Bar::at_least(1.05, "admitted: CPU, nginx / tollgate", thrift(Duty::Admit, "nginx")),
        Bar::at_least(3.0, "admitted: CPU, envoy / tollgate", thrift(Duty::Admit, "envoy")),
        Bar::at_least(0.95, "refused: CPU, nginx / tollgate", thrift(Duty::Refuse, "nginx")),
        Bar::at_least(2.2, "refused: CPU, envoy / tollgate", thrift(Duty::Refuse, "envoy")),
        Bar::at_most(1.05, "CPU per request: three limits / limiting off", cost),
        Bar::at_most(1.15, "CPU per admitted request: all on / observe off", watching),
        Bar::at_most(1.0, "CPU per request: shed by the node / refused", shed(Duty::ShedNode)),
        Bar::at_most(1.0, "CPU per request: shed by adaptive limit / refused", shed(Duty::ShedAdaptive)),
        Bar::at_most(200.0, "MiB with 10,000 connections that never asked", ours.map(|it| it.silent)),
        Bar::at_most(40.0, "MiB with 10,000 connections that asked once", ours.map(|it| it.active)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_was_not_measured_is_neither_met_nor_missed() {
        let rows = [row(Duty::Admit, "tollgate", [100.0; 3]), row(Duty::Admit, "nginx", [105.0; 3])];
        let bars = all(&rows, &[]);
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
        let weight = Weight { subject: "tollgate", alone: 10.0, silent: 100.0, active: 41.0 };
        let met: Vec<_> = all(&rows, &[weight]).iter().map(|bar| bar.met).collect();
        assert_eq!(
            met,
            [None, None, None, None, Some(false), Some(true), None, None, Some(true), Some(false)]
        );
    }

    fn row(duty: Duty, subject: &'static str, numbers: [f64; 3]) -> Row {
        let sample = |number| Sample { per_second: number, cpu_us: number, ..Sample::default() };
        Row::new((duty.name(), subject), numbers.map(sample).into())
    }
}
