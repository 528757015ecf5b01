//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod decisions;
mod envoy;
mod gallery;
mod hostile;
