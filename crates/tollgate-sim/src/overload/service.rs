//! The service: workers, and a queue in front of them.

use std::collections::VecDeque;

use super::callers::CallInfo;
use super::scenario::Scenario;
use super::shape::Phase;

/// The work that fits the queue, in seconds of all workers.
const QUEUE_SECONDS: f64 = 4.0;

/// The service.
pub(super) struct Service {
    idle_workers: u32,
    queue: VecDeque<usize>,
    max_queue: usize,
    mean_micros: f64,
    phases: Vec<Phase>,
}

impl Service {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and bounded by the scenario"
    )]
    pub(super) fn new(scenario: &Scenario) -> Self {
        let capacity = scenario.capacity();
        Self {
            idle_workers: scenario.workers,
            queue: VecDeque::new(),
            max_queue: (capacity * QUEUE_SECONDS).ceil() as usize,
            mean_micros: scenario.service_time.as_micros() as f64,
            phases: scenario.shape.phases(scenario.duration, capacity, scenario.load),
        }
    }

    /// Adds an attempt to the queue. Returns whether there was room.
    pub(super) fn enqueue(&mut self, id: usize) -> bool {
        let has_room = self.queue.len() < self.max_queue;
        if has_room {
            self.queue.push_back(id);
        }
        has_room
    }

    /// Returns the next attempt if a worker is idle, which works on it from now on.
    pub(super) fn take_next(&mut self) -> Option<usize> {
        if self.idle_workers == 0 {
            return None;
        }
        let id = self.queue.pop_front()?;
        self.idle_workers -= 1;
        Some(id)
    }

    /// Makes the worker of a finished attempt idle.
    pub(super) const fn finish(&mut self) {
        self.idle_workers += 1;
    }

    /// Returns the time that a worker needs for a call that it starts now, in microseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; a cast saturates")]
    pub(super) fn work_time(&self, call: &CallInfo, now: u64) -> u64 {
        let phase = self.phases.iter().find(|it| now < it.until).or(self.phases.last());
        let slowdown =
            phase.map_or(1.0, |it| it.slowdown * if call.route == 0 { it.route_slowdown } else { 1.0 });
        (self.mean_micros * call.work * slowdown).ceil() as u64
    }
}
