//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod client_address;
mod dialects;
mod headers;
mod readiness;
mod slots;
mod socket;
mod soft;
mod tarpit;
mod wall;
