#![doc = include_str!("../API.md")]
//!
//! # Rooms
//!
//! - [`Api`]: takes a request, gives an answer, never fails.
//! - [`Access`]: who may ask, and for what ([`Role`], [`Caller`]). [`Status`]: what `/readyz` tells.
//! - [`ModeOverrides`]: which limits refuse, switched while requests are served.
//! - [`Gauges`]: what only the process around it knows.
//! - [`JsonAnswer`]: what another protocol's HTTP form answers.
//! - [`openapi()`]: the API, described for machines.
//!
//! Not here: sockets. It is handed requests and hands back answers.

mod access;
mod api;
mod auth;
mod body;
mod check;
mod decision_view;
mod decisions;
mod explain;
mod gauges;
mod json;
mod lab;
mod limit_keys;
mod limits;
mod metrics;
mod mode_overrides;
mod modes;
mod offload;
mod openapi;
mod overview;
mod page;
mod policy_view;
mod problem;
mod query;
mod receipts;
mod reply;
mod route;
mod settle;
mod stats;
mod status;
mod throttle;

pub use access::{Access, Caller, Role};
pub use api::{Api, JsonAnswer};
pub use gauges::Gauges;
pub use mode_overrides::{
    Actor, Change, LimitOverride, MAX_CHANGES, ModeOverrides, Modes, SavedOverrides, Switch, SwitchError,
    SwitchOutcome, Target,
};
pub use openapi::openapi;
pub use receipts::MAX_RECEIPTS;
pub use status::Status;
