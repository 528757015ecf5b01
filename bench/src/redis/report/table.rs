//! Prints a run as a table.

use std::fmt;

use super::{RedisReport, Setting};
use crate::redis::Case;
use crate::redis::exactness::{Contention, Spent};
use crate::redis::latency::{Latency, Round};
use crate::redis::trial::Sample;
use crate::report::{Machine, median};

impl fmt::Display for RedisReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { machine, redis, in_flight, seconds } = &self.setting;
        let Machine { processor, cores, rustc, commit } = machine;
        writeln!(f, "{processor}, {cores} cores, {rustc}, commit {commit}")?;
        writeln!(f, "Redis {redis}, {in_flight} in flight, {seconds} s in each round")?;
        writeln!(
            f,
            "\n{:<16}{:>12}{:>11}{:>12}{:>13}{:>11}{:>11}{:>11}",
            "case",
            "decisions/s",
            "x baseline",
            "for a call",
            "Redis us",
            "x baseline",
            "client us",
            "Redis core"
        )?;
        row(f, Case::Baseline.name(), &self.baseline, 1.0, 1.0)?;
        for it in &self.rows {
            row(f, it.case, &it.median, it.times_baseline, it.redis_cpu_saved)?;
        }
        self.latencies(f)?;
        self.exactness(f)?;
        writeln!(f)?;
        for case in [Case::Baseline].iter().chain(&Case::COMPARED) {
            writeln!(f, "{}: {}", case.name(), case.remark())?;
        }
        writeln!(f)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, case: &str, it: &Sample, times: f64, saved: f64) -> fmt::Result {
    let per_call = it.per_call.map_or("-".to_owned(), |number| format!("{number:.1}"));
    writeln!(
        f,
        "{case:<16}{:>12.0}{times:>11.2}{per_call:>12}{:>13.3}{saved:>11.2}{:>11.3}{:>9.0} %",
        it.per_second,
        it.redis_cpu_us,
        it.client_cpu_us,
        it.redis_busy * 100.0,
    )
}

impl RedisReport {
    fn latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<28}{:>9}{:>9}{:>15}", "one at a time", "p50 us", "p99 us", "x bare EVALSHA")?;
        self.latency_of(f, "bare EVALSHA", |it| &it.bare)?;
        self.latency_of(f, "the store, one limit", |it| &it.one_limit)?;
        self.latency_of(f, "the store, three limits", |it| &it.three_limits)?;
        let trips = &self.round_trips;
        writeln!(
            f,
            "{} decisions one at a time: {} calls by the store's count, {} by Redis'",
            trips.decisions, trips.calls, trips.scripts
        )
    }

    fn latency_of(&self, f: &mut fmt::Formatter<'_>, name: &str, of: fn(&Round) -> &Latency) -> fmt::Result {
        let ratio = median(self.latency.iter().map(|it| of(it).p50_us / it.bare.p50_us));
        let Latency { p50_us, p99_us, .. } = of(&self.latency_median);
        writeln!(f, "{name:<28}{p50_us:>9.1}{p99_us:>9.1}{ratio:>15.2}")
    }

    fn exactness(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Spent { limit, .. }) = self.exactness.first() else { return Ok(()) };
        let sums: Vec<String> =
            self.exactness.iter().map(|it| it.admitted.iter().sum::<u64>().to_string()).collect();
        let Contention { processes, requests, .. } = Contention::EXACT;
        let checks = processes * requests;
        writeln!(
            f,
            "\n{processes} processes, {checks} checks at once on {limit} an hour: admitted {}",
            sums.join(", ")
        )
    }
}
