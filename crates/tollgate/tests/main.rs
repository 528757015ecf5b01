//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod abandoned;
mod adaptive;
mod advisory;
mod auto_traits;
mod decisions;
mod entry_points;
mod exceeding;
mod fleet_shedding;
mod gate;
mod hostile;
mod in_line;
mod outage;
mod pending;
mod permits;
mod queue;
mod reloads;
mod shedding;
mod store_deadline;
mod waiting;
