//! Tests of the public API, one module for each topic.
//!
//! One binary instead of many, because linking each takes seconds.

mod adaptive;
mod auto_traits;
mod client_address;
mod database_pool;
mod dialects;
mod headers;
mod lines;
mod one_path;
mod priority;
mod readiness;
mod remote_store;
mod shedding;
mod slots;
mod socket;
mod soft;
mod tarpit;
mod waiting;
mod wall;
