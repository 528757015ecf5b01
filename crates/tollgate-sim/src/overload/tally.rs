//! Counts the results of one protection.

use super::callers::CallInfo;
use super::protection::CLASSES;
use super::report::{GroupReport, OverloadSeries};
use super::scenario::Scenario;
use super::shape::Phase;
use crate::waits::WaitCounter;

/// The number of cells of a series. The phases of all shapes begin and end with a cell.
pub(super) const CELLS: u64 = 120;

/// The results of one protection so far.
pub(super) struct Tally {
    /// Length of a cell, in microseconds.
    step: u64,
    phases: Vec<Phase>,
    pub(super) calls: u64,
    pub(super) attempts: u64,
    pub(super) refused: u64,
    /// Calls that were answered in time during the overload.
    pub(super) good: u64,
    /// Of attempts that began in the overload and were admitted.
    latency: WaitCounter,
    classes: [Group; CLASSES.len()],
    /// The route that becomes slow, and the others.
    routes: [Group; 2],
    /// Calls after the last overload, and how many of them succeeded.
    pub(super) after: (u64, u64),
    pub(super) cells: Vec<Cell>,
}

/// Counts of one cell.
#[derive(Clone, Default)]
pub(super) struct Cell {
    attempts: u64,
    /// Calls that were answered in time, by the time of the answer.
    good: u64,
    /// Latencies by the time of the response.
    latency: WaitCounter,
    /// Calls by the time of their first attempt, how many of them succeeded, and the sum of their latencies.
    pub(super) calls: u64,
    pub(super) succeeded: u64,
    pub(super) latency_sum: u64,
    critical: (u64, u64),
}

/// Counts of one class or route, in the overload.
#[derive(Default)]
struct Group {
    calls: u64,
    succeeded: u64,
    latency: WaitCounter,
}

impl Group {
    fn report(&self, name: &'static str) -> GroupReport {
        let latency = self.latency.waits();
        GroupReport {
            name,
            calls: self.calls,
            succeeded: self.succeeded,
            success: share(self.succeeded, self.calls),
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
        }
    }
}

impl Tally {
    pub(super) fn new(scenario: &Scenario, phases: &[Phase]) -> Self {
        Self {
            step: (scenario.duration.as_micros() / CELLS).max(1),
            phases: phases.to_vec(),
            calls: 0,
            attempts: 0,
            refused: 0,
            good: 0,
            latency: WaitCounter::default(),
            classes: Default::default(),
            routes: Default::default(),
            after: (0, 0),
            cells: vec![Cell::default(); usize::try_from(CELLS).unwrap_or(usize::MAX)],
        }
    }

    fn phase(&self, at: u64) -> usize {
        self.phases.iter().position(|it| at < it.until).unwrap_or(self.phases.len())
    }

    fn is_overload(&self, at: u64) -> bool {
        self.phases.get(self.phase(at)).is_some_and(|it| it.is_overload)
    }

    /// Returns the cell of a time; `None` after the end of the run.
    fn cell(&mut self, at: u64) -> Option<&mut Cell> {
        self.cells.get_mut(usize::try_from(at / self.step).unwrap_or(usize::MAX))
    }

    fn groups(&mut self, call: &CallInfo) -> [&mut Group; 2] {
        [&mut self.classes[usize::from(call.class)], &mut self.routes[usize::from(call.route > 0)]]
    }

    /// Counts a new call.
    pub(super) fn call(&mut self, call: &CallInfo) {
        self.calls += 1;
        if self.is_overload(call.at) {
            self.groups(call).into_iter().for_each(|it| it.calls += 1);
        }
        // The last phase follows the last overload.
        self.after.0 += u64::from(self.phase(call.at) + 1 == self.phases.len());
        let is_critical = call.class == 0;
        if let Some(cell) = self.cell(call.at) {
            cell.calls += 1;
            cell.critical.0 += u64::from(is_critical);
        }
    }

    /// Counts an attempt of a call.
    pub(super) fn attempt(&mut self, at: u64) {
        self.attempts += 1;
        if let Some(cell) = self.cell(at) {
            cell.attempts += 1;
        }
    }

    /// Counts the response to an admitted attempt, whether its caller still waits or not.
    pub(super) fn response(&mut self, call: &CallInfo, started_at: u64, now: u64) {
        let latency = tollgate::Span::from_micros(now - started_at);
        if self.is_overload(started_at) {
            self.latency.put(latency);
            self.groups(call).into_iter().for_each(|it| it.latency.put(latency));
        }
        if let Some(cell) = self.cell(now) {
            cell.latency.put(latency);
        }
    }

    /// Counts a call that is answered in time.
    pub(super) fn success(&mut self, call: &CallInfo, now: u64) {
        if self.is_overload(call.at) {
            self.groups(call).into_iter().for_each(|it| it.succeeded += 1);
        }
        self.good += u64::from(self.is_overload(now));
        self.after.1 += u64::from(self.phase(call.at) + 1 == self.phases.len());
        let is_critical = call.class == 0;
        if let Some(cell) = self.cell(call.at) {
            cell.succeeded += 1;
            cell.critical.1 += u64::from(is_critical);
            cell.latency_sum += now - call.at;
        }
        if let Some(cell) = self.cell(now) {
            cell.good += 1;
        }
    }

    /// Returns the latency in the overload that half and 99 of 100 admitted attempts do not exceed, in milliseconds.
    pub(super) fn latency(&self) -> (u64, u64) {
        let latency = self.latency.waits();
        (latency.p50_ms, latency.p99_ms)
    }

    pub(super) fn classes(&self) -> Vec<GroupReport> {
        CLASSES.iter().zip(&self.classes).map(|(class, group)| group.report(class.0)).collect()
    }

    /// Returns the slow route and the others.
    pub(super) fn routes(&self) -> Vec<GroupReport> {
        let [slow, others] = &self.routes;
        vec![slow.report("slow"), others.report("others")]
    }

    pub(super) fn series(&self) -> OverloadSeries {
        let each = |of: fn(&Cell) -> u64| self.cells.iter().map(of).collect();
        OverloadSeries {
            attempts: each(|it| it.attempts),
            good: each(|it| it.good),
            p99_ms: each(|it| it.latency.waits().p99_ms),
            critical: self
                .cells
                .iter()
                .map(|it| (it.critical.0 > 0).then(|| share(it.critical.1, it.critical.0)))
                .collect(),
        }
    }
}

/// Returns a share of one; one of nothing is all of it.
#[allow(clippy::cast_precision_loss, reason = "a ratio of counts, for people")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}
