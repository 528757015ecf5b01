//! Tests of the in-memory store, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod capacity;
mod conformance;
mod flood_model;
mod floods;
mod floods_and_reloads;
mod hostile;
mod late_charges;
mod snapshots;
mod transfer;
mod wall;
mod wall_floods;
