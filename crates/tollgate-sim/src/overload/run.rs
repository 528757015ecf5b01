//! Runs a scenario against one protection after the other.

use tollgate::RequestOutcome;

use super::TIMEOUT;
use super::admission::{Admission, Admitted, Verdict};
use super::callers::{CallInfo, Callers};
use super::event::{Event, Events};
use super::protection::{CLASSES, Protection};
use super::recovery::{cells_to_recover, cells_until};
use super::report::{OverloadReport, ProtectionReport, RetryReport, ShareReport};
use super::scenario::{Scenario, ScenarioError};
use super::service::Service;
use super::shape::Phase;
use super::tally::{CELLS, Tally, share};
use super::words;

/// A run in progress.
pub struct OverloadRun {
    scenario: Scenario,
    phases: Vec<Phase>,
    /// Protections that have not run, the next one last.
    waiting: Vec<(Protection, Admission)>,
    current: Option<Trial>,
    done: Vec<ProtectionReport>,
    notes: Vec<String>,
}

impl OverloadRun {
    /// Checks the scenario and starts.
    pub fn new(scenario: Scenario) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let phases = scenario.shape.phases(scenario.duration, scenario.capacity(), scenario.load);
        let mut waiting = Vec::new();
        for &protection in scenario.protections.iter().rev() {
            waiting.push((protection, Admission::new(protection.policy(&scenario)?, scenario.seed)));
        }
        let mut run = Self { phases, waiting, current: None, done: Vec::new(), notes: Vec::new(), scenario };
        run.next_trial();
        Ok(run)
    }

    fn next_trial(&mut self) {
        let Some((protection, admission)) = self.waiting.pop() else { return };
        self.current = Some(Trial::new(protection, admission, &self.scenario, &self.phases));
    }

    /// Processes this many events. Returns whether events are left.
    pub fn step(&mut self, events: u32) -> bool {
        for _ in 0..events {
            let Some(trial) = &mut self.current else { return false };
            if !trial.step() {
                self.finish();
            }
        }
        self.current.is_some()
    }

    /// Completes the current protection and starts the next one.
    fn finish(&mut self) {
        let Some(trial) = self.current.take() else { return };
        if trial.tally.attempts >= trial.max_attempts {
            self.notes.push(format!(
                "{}: cut short after {} attempts, at {:.1} s of {}",
                trial.protection.word(),
                trial.max_attempts,
                seconds(trial.now),
                self.scenario.duration,
            ));
        }
        self.done.push(self.protection_report(&trial));
        self.next_trial();
    }

    /// Processes all remaining events.
    pub fn run(mut self) -> OverloadReport {
        while self.step(1 << 16) {}
        self.report()
    }

    fn overloads(&self) -> Vec<(u64, u64)> {
        let starts = [0].into_iter().chain(self.phases.iter().map(|it| it.until));
        let spans = starts.zip(&self.phases).filter(|(_, phase)| phase.is_overload);
        spans.map(|(start, phase)| (start, phase.until)).collect()
    }

    fn protection_report(&self, trial: &Trial) -> ProtectionReport {
        let duration = self.scenario.duration.as_micros();
        let overloads = self.overloads();
        let (first, last) = (overloads.first().map_or(0, |it| it.0), overloads.last().map_or(0, |it| it.1));
        let starts = [0].into_iter().chain(self.phases.iter().map(|it| it.until));
        let possible: f64 = starts
            .zip(&self.phases)
            .filter(|(_, phase)| phase.is_overload)
            .map(|(start, phase)| phase.possible * seconds(phase.until - start))
            .sum();
        let tally = &trial.tally;
        let (p50_ms, p99_ms) = tally.latency();
        let recovered =
            cells_to_recover(&tally.cells, cells_until(first, duration), cells_until(last, duration));
        let mut report = ProtectionReport {
            protection: trial.protection,
            policy: trial.protection.policy_text(&self.scenario),
            calls: tally.calls,
            attempts: tally.attempts,
            refused: tally.refused,
            goodput: as_number(tally.good) / possible.max(1e-9),
            p50_ms,
            p99_ms,
            classes: tally.classes(),
            routes: (self.scenario.shape.routes() > 1).then(|| tally.routes()),
            success_after: share(tally.after.1, tally.after.0),
            recovered_after_s: recovered.map(|cells| seconds(cells as u64 * duration / CELLS)),
            words: String::new(),
            series: tally.series(),
        };
        report.words = words::describe(&report, seconds(duration - last));
        report
    }

    fn step_s(&self) -> f64 {
        seconds(self.scenario.duration.as_micros()) / as_number(CELLS)
    }

    /// Returns the results.
    pub fn report(self) -> OverloadReport {
        let step_s = self.step_s();
        let overloads = self.overloads().into_iter().map(|(from, until)| (seconds(from), seconds(until)));
        let middle = |cell: u64| self.scenario.duration.as_micros() / CELLS * cell + 1;
        let possible = (0..CELLS).map(|cell| {
            let phase = self.phases.iter().find(|it| middle(cell) < it.until).or(self.phases.last());
            phase.map_or(0.0, |it| it.possible)
        });
        let (attempts, budget) = self.scenario.shape.retries();
        OverloadReport {
            shape: self.scenario.shape.word(),
            words: self.scenario.shape.sentence(),
            workers: self.scenario.workers,
            service_time_ms: seconds(self.scenario.service_time.as_micros()) * 1e3,
            capacity: self.scenario.capacity(),
            load: self.scenario.load,
            duration_s: seconds(self.scenario.duration.as_micros()),
            seed: self.scenario.seed,
            timeout_ms: TIMEOUT.as_micros() / 1_000,
            retry: (attempts > 1).then_some(RetryReport { attempts, budget }),
            mix: CLASSES
                .iter()
                .map(|it| ShareReport { name: it.0, share: f64::from(it.1) / 100.0 })
                .collect(),
            overloads: overloads.collect(),
            step_s,
            possible: possible.collect(),
            protections: self.done,
            notes: self.notes,
        }
    }
}

/// One protection and the calls that meet it.
struct Trial {
    protection: Protection,
    admission: Admission,
    callers: Callers,
    service: Service,
    events: Events,
    attempts: Attempts,
    tally: Tally,
    /// The paths of each route, by class.
    paths: Vec<[String; CLASSES.len()]>,
    now: u64,
    /// The end of new attempts.
    end: u64,
    max_attempts: u64,
}

/// An attempt of a call, until both its caller and the service are done with it.
struct Attempt {
    call: CallInfo,
    started_at: u64,
    is_waiting: bool,
    is_left: bool,
    admitted: Option<Admitted>,
}

/// Attempts by their id. Ids are used again.
#[derive(Default)]
struct Attempts {
    slots: Vec<(u32, Option<Attempt>)>,
    free: Vec<usize>,
}

impl Attempts {
    /// Adds an attempt, and returns its id and the generation of the id.
    fn insert(&mut self, attempt: Attempt) -> (usize, u32) {
        if let Some(id) = self.free.pop() {
            self.slots[id].1 = Some(attempt);
            return (id, self.slots[id].0);
        }
        self.slots.push((0, Some(attempt)));
        (self.slots.len() - 1, 0)
    }

    fn get(&mut self, id: usize) -> Option<&mut Attempt> {
        self.slots.get_mut(id)?.1.as_mut()
    }

    fn remove(&mut self, id: usize) -> Option<Attempt> {
        let (generation, slot) = self.slots.get_mut(id)?;
        let attempt = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id);
        Some(attempt)
    }

    fn is_current(&self, id: usize, generation: u32) -> bool {
        self.slots.get(id).is_some_and(|it| it.0 == generation && it.1.is_some())
    }
}

impl Trial {
    fn new(protection: Protection, admission: Admission, scenario: &Scenario, phases: &[Phase]) -> Self {
        let paths = (0..scenario.shape.routes())
            .map(|route| CLASSES.map(|(.., last)| format!("/route-{route}/{last}")));
        let mut trial = Self {
            protection,
            admission,
            callers: Callers::new(scenario),
            service: Service::new(scenario),
            events: Events::default(),
            attempts: Attempts::default(),
            tally: Tally::new(scenario, phases),
            paths: paths.collect(),
            now: 0,
            end: scenario.duration.as_micros(),
            max_attempts: scenario.max_attempts,
        };
        trial.plan_call();
        trial
    }

    fn plan_call(&mut self) {
        if let Some(call) = self.callers.next_call() {
            self.events.push(call.at, Event::Call(call));
        }
    }

    /// Processes the next event. Returns whether there was one. The run ends when the callers of all attempts know
    /// how they ended.
    fn step(&mut self) -> bool {
        let next = [self.events.next_at(), self.admission.next_timer()].into_iter().flatten().min();
        let Some(at) = next.filter(|at| *at <= self.end + TIMEOUT.as_micros()) else { return false };
        if self.tally.attempts >= self.max_attempts {
            return false;
        }
        self.now = at;
        self.admission.set_time(at);
        if self.events.next_at() == Some(at) {
            match self.events.pop() {
                Some(Event::Call(call)) => {
                    self.plan_call();
                    self.callers.record_call();
                    self.tally.call(&call);
                    self.attempt(call);
                }
                Some(Event::Retry(call)) => self.attempt(call),
                Some(Event::Done(id)) => self.done(id),
                Some(Event::Timeout(id, generation)) => self.timeout(id, generation),
                None => {}
            }
        }
        while let Some((id, admitted)) = self.admission.next_decided() {
            match admitted {
                Some(admitted) => self.admit(id, admitted),
                None => self.refuse(id),
            }
        }
        true
    }

    /// Makes an attempt of a call.
    fn attempt(&mut self, call: CallInfo) {
        let call = CallInfo { attempts: call.attempts + 1, ..call };
        self.tally.attempt(self.now);
        let attempt =
            Attempt { call, started_at: self.now, is_waiting: false, is_left: false, admitted: None };
        let (id, generation) = self.attempts.insert(attempt);
        let path = &self.paths[usize::from(call.route)][usize::from(call.class)];
        match self.admission.decide(id, path) {
            Verdict::Admitted(admitted) => self.admit(id, admitted),
            Verdict::Refused => return self.refuse(id),
            Verdict::Waits => {
                if let Some(attempt) = self.attempts.get(id) {
                    attempt.is_waiting = true;
                }
            }
        }
        if self.attempts.is_current(id, generation) {
            self.events.push(self.now + TIMEOUT.as_micros(), Event::Timeout(id, generation));
        }
    }

    /// Passes an admitted attempt to the service.
    fn admit(&mut self, id: usize, admitted: Admitted) {
        admitted.start();
        if !self.service.enqueue(id) {
            self.admission.release(admitted, RequestOutcome::Failed);
            if let Some(attempt) = self.attempts.remove(id) {
                self.fail(attempt.call);
            }
            return;
        }
        if let Some(attempt) = self.attempts.get(id) {
            attempt.is_waiting = false;
            attempt.admitted = Some(admitted);
        }
        self.work();
    }

    fn refuse(&mut self, id: usize) {
        self.tally.refused += 1;
        if let Some(attempt) = self.attempts.remove(id) {
            self.fail(attempt.call);
        }
    }

    /// Lets idle workers take attempts from the queue.
    fn work(&mut self) {
        while let Some(id) = self.service.take_next() {
            let call = self.attempts.get(id).map(|it| it.call);
            let time = call.map_or(0, |call| self.service.work_time(&call, self.now));
            self.events.push(self.now + time, Event::Done(id));
        }
    }

    /// Ends the work on an attempt.
    fn done(&mut self, id: usize) {
        self.service.finish();
        if let Some(attempt) = self.attempts.remove(id) {
            self.tally.response(&attempt.call, attempt.started_at, self.now);
            if !attempt.is_left {
                self.tally.success(&attempt.call, self.now);
            }
            if let Some(admitted) = attempt.admitted {
                self.admission.release(admitted, RequestOutcome::Answered);
            }
        }
        self.work();
    }

    /// The caller of an attempt gives up. The service does not notice it.
    fn timeout(&mut self, id: usize, generation: u32) {
        if !self.attempts.is_current(id, generation) {
            return;
        }
        let Some(attempt) = self.attempts.get(id) else { return };
        let call = attempt.call;
        attempt.is_left = true;
        if attempt.is_waiting {
            self.attempts.remove(id);
            self.admission.leave(id);
        }
        self.fail(call);
    }

    /// A failed attempt: the caller tries again, or gives up.
    fn fail(&mut self, call: CallInfo) {
        let Some(wait) = self.callers.retry_after(&call) else { return };
        if self.now + wait < self.end {
            self.events.push(self.now + wait, Event::Retry(call));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
const fn as_number(count: u64) -> f64 {
    count as f64
}

fn seconds(micros: u64) -> f64 {
    as_number(micros) / 1e6
}
