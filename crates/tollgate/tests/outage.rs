//! Decisions while the store gives no answer, and the replay after it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod ad_hoc;
mod probing;
mod receipts;
mod reconciling;
mod rules;
pub(crate) mod support;
