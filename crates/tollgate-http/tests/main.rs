//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod auto_traits;
mod client_address;
mod dialects;
mod headers;
mod one_path;
mod readiness;
mod remote_store;
mod slots;
mod socket;
mod soft;
mod tarpit;
mod waiting;
mod wall;
