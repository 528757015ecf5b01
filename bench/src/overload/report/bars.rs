//! Targets of the overload benchmark, and results.

use super::Row;
use crate::overload::contestant::Contestant;
use crate::overload::figures::Figures;
use crate::report::Bar;

/// The number of seconds for a target that was not reached within its phase.
const NEVER: f64 = f64::INFINITY;

pub(super) fn all(rows: &[Row]) -> Vec<Bar> {
    let of = |case: &str, contestant: Contestant| {
        let row = rows.iter().find(|row| row.case == case && row.subject == contestant.name());
        row.map(|row| &row.median)
    };
    let goodput = |contestant| of("overload", contestant).map(|it| it.goodput);
    let envoys = [Contestant::EnvoyAdaptiveConcurrency, Contestant::EnvoyAdmissionControl];
    let best_envoy = envoys.into_iter().filter_map(goodput).max_by(f64::total_cmp);
    let ratio = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
    // The median without load: the stricter reading.
    let latency = |contestant| {
        ratio(of("overload", contestant).map(|it| it.p99_ms), of("unloaded", contestant).map(|it| it.p50_ms))
    };
    let recovered = |contestant| of("recovery", contestant).map(|it| it.recovered_s.unwrap_or(NEVER));
    let settled = |contestant| of("halved", contestant).map(|it: &Figures| it.settled_s.unwrap_or(NEVER));
    let (plain, classes) = (Contestant::Tollgate, Contestant::TollgateClasses);
    let critical = of("overload", classes).map(|it| it.success.critical);
    let their_critical = envoys.into_iter().filter_map(|it| of("overload", it)).map(|it| it.success.critical);
    let critical_ratio = ratio(critical, their_critical.max_by(f64::total_cmp));
    vec![
        Bar::at_least(0.95, "4x: goodput / capacity, adaptive", goodput(plain)),
        Bar::at_least(0.95, "4x: goodput / capacity, with classes", goodput(classes)),
        Bar::at_least(1.1, "4x: goodput, adaptive / best of Envoy", ratio(goodput(plain), best_envoy)),
        Bar::at_least(1.1, "4x: goodput, with classes / best of Envoy", ratio(goodput(classes), best_envoy)),
        Bar::at_most(3.0, "4x: p99 of admitted / unloaded p50, adaptive", latency(plain)),
        Bar::at_most(3.0, "4x: p99 of admitted / unloaded p50, with classes", latency(classes)),
        Bar::at_least(0.999, "4x: success of critical requests, with classes", critical),
        Bar::at_least(1.1, "4x: critical answered, with classes / best of Envoy", critical_ratio),
        Bar::at_most(2.0, "seconds to recover, adaptive", recovered(plain)),
        Bar::at_most(2.0, "seconds to recover, with classes", recovered(classes)),
        Bar::at_most(10.0, "seconds to Little's law +- 25 %, adaptive", settled(plain)),
        Bar::at_most(10.0, "seconds to Little's law +- 25 %, with classes", settled(classes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_envoy_counts_and_a_target_that_was_never_reached_is_missed() {
        let row = |case, contestant: Contestant, goodput| {
            let figures = Figures { goodput, p50_ms: 20.0, p99_ms: 50.0, ..Figures::default() };
            Row::new(case, contestant.name(), vec![figures])
        };
        let rows = [
            row("unloaded", Contestant::Tollgate, 0.5),
            row("overload", Contestant::Tollgate, 0.99),
            row("recovery", Contestant::Tollgate, 0.5),
            row("overload", Contestant::EnvoyAdaptiveConcurrency, 0.8),
            row("overload", Contestant::EnvoyAdmissionControl, 0.95),
        ];
        let bars = all(&rows);
        let met: Vec<_> = bars.iter().map(|bar| bar.met).collect();
        assert_eq!(met[..5], [Some(true), None, Some(false), None, Some(true)]);
        assert_eq!((met[8], met[10]), (Some(false), None));
    }
}
