//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod ambiguous;
mod beside;
mod brief;
mod descriptors;
mod gallery;
mod hostile;
mod keys;
mod leases;
mod lints;
mod match_request;
mod matching;
mod overlay;
mod priorities;
mod readings;
mod regions;
mod rule_sets;
mod seeded;
mod shared_ids;
