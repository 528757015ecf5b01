#![doc = include_str!("../API.md")]
//!
//! # Rooms
//!
//! - [`Api`]: takes a request, gives an answer, never fails.
//! - [`Access`]: who may ask, and for what ([`Role`], [`Caller`]). [`Status`]: what `/readyz` tells.
//! - [`Switchboard`]: which limits refuse, switched while requests are served.
//! - [`Gauges`]: what only the process around it knows.
//! - [`JsonAnswer`]: what another protocol's HTTP form answers.
//! - [`openapi()`]: the API, described for machines.
//!
//! Not here: sockets. It is handed requests and hands back answers.

mod access;
mod apart;
mod api;
mod auth;
mod body;
mod check;
mod decisions;
mod explain;
mod gauges;
mod json;
mod lab;
mod limits;
mod metrics;
mod modes;
mod named;
mod openapi;
mod overview;
mod page;
mod problem;
mod query;
mod receipts;
mod reply;
mod route;
mod settle;
mod stats;
mod status;
mod switchboard;
mod throttle;
mod told;
mod understood;

pub use access::{Access, Caller, Role};
pub use api::{Api, JsonAnswer};
pub use gauges::Gauges;
pub use openapi::openapi;
pub use receipts::KEPT_DECISIONS;
pub use status::Status;
pub use switchboard::{
    Change, MOST_CHANGES, Modes, Saved, Switch, SwitchError, Switchboard, Switched, SwitchedLimit, Target,
    Who,
};
