//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod advisory;
mod auto_traits;
mod decisions;
mod entry_points;
mod exceeding;
mod gate;
mod hostile;
mod outage;
mod pending;
mod permits;
mod queue;
mod reloads;
