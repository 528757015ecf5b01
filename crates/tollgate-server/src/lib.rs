#![doc = include_str!("../API.md")]
//!
//! # Types
//!
//! - [`Api`]: turns a request into a response; it never fails.
//! - [`Access`]: authorization by [`Role`] and [`Caller`]. [`Status`]: the state that `/readyz`
//!   reports.
//! - [`ModeOverrides`]: changes the modes of limits at run time.
//! - [`Gauges`]: values that only the surrounding process knows.
//! - [`JsonAnswer`]: the response of a handler for `POST /json`.
//! - [`decision_line`]: a record of a decision in the shape of `/v1/decisions`.
//! - [`openapi()`]: the OpenAPI description.
//!
//! The crate has no sockets: the caller passes requests and sends the responses.

mod access;
mod api;
mod auth;
mod body;
mod book;
mod check;
mod decision_json;
mod decision_view;
mod decisions;
mod explain;
mod fleet;
mod gauges;
mod history;
mod json;
mod lab;
mod learned_limits;
mod lease_view;
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
mod raw;
mod receipts;
mod reply;
mod route;
mod settle;
mod shed_view;
mod stats;
mod status;
mod throttle;

pub use access::{Access, Caller, Role};
pub use api::{Api, JsonAnswer};
pub use book::Book;
pub use decisions::decision_line;
pub use gauges::Gauges;
pub use mode_overrides::{
    Actor, Change, LimitOverride, ModeOverrides, Modes, SavedOverrides, Switch, SwitchError, SwitchOutcome,
    Target,
};
pub use openapi::openapi;
pub use raw::{BufferedReply, BufferedRequest, BufferedRoute, ReplyFuture};
pub use receipts::MAX_RECEIPTS;
pub use reply::JSON_HEADER_LINES;
pub use status::Status;
pub use tollgate_api::{DecisionLine, MAX_CHANGES, ThrottledUpstream};
