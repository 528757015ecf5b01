//! The average cost of a call, learned from the units that several calls used.

use tollgate::Timestamp;

use super::learning::tolerance;
use super::{Bucket, Observation, Ticket, span_us};
use crate::headers::{BucketKind, Shape};

/// Calls after which the average cost is computed.
const COST_SAMPLE: u64 = 8;

/// The remaining units at the start of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostSample {
    at: Timestamp,
    number: u64,
    remaining: f64,
    reset_at: Option<Timestamp>,
}

impl Bucket {
    /// Learns the average cost of a call from the units that a number of calls used.
    pub(super) fn sample_cost(
        &mut self,
        ticket: &Ticket,
        remaining: f64,
        seen: &Observation,
        now: Timestamp,
    ) {
        let next = CostSample { at: now, number: ticket.number, remaining, reset_at: seen.reset_at };
        let Some(first) = self.sample else {
            self.sample = Some(next);
            return;
        };
        if ticket.number < first.number + COST_SAMPLE {
            return;
        }
        let moved = match (first.reset_at, seen.reset_at) {
            (Some(old), Some(new)) => new > old + tolerance(seen),
            _ => false,
        };
        let refill = match self.shape {
            Some(Shape::Refill) => self.rate.unwrap_or(0.0) * span_us(now.since(first.at)),
            _ => 0.0,
        };
        self.sample = Some(next);
        #[allow(clippy::cast_precision_loss)] // estimates
        let cost = (first.remaining - remaining + refill) / (ticket.number - first.number) as f64;
        let is_full = remaining + ticket.cost >= self.capacity();
        if (self.shape == Some(Shape::Refill) || !moved) && !is_full && cost.is_finite() {
            let smoothed = 0.7 * self.average_cost + 0.3 * cost.clamp(0.1, self.capacity().max(0.1));
            // Other clients of the bucket, and rounding, look like a cost of a little more than one.
            let is_request = self.kind == BucketKind::Requests && smoothed < 1.8;
            self.average_cost = if is_request { 1.0 } else { smoothed };
        }
    }
}
