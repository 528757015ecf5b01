//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod counting;
mod explain;
mod explanation;
mod gone;
mod metrics;
mod remembering;
mod series;
