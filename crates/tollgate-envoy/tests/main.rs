//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod apply;
mod cache;
mod counting;
mod find;
mod gallery;
mod hostile;
