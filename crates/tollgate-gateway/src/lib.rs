//! A reverse proxy behind the Tollgate tower layer.
//!
//! ```text
//! connection (tollgate-net) ─► Limit (tollgate-http) ─► Forward ─► choose an upstream ─► a connection of its pool
//!                                │ refused: no body read,   │ malformed: 400      │ down: 502, slow: 504,
//!                                │ no upstream contacted    │ too large: 413      │ ejected for a while
//! ```
//!
//! Plain HTTP/1.1 requests take a shorter path without hyper (`http1`), with the same outcome.
//!
//! Each worker has its own connection pools, so that threads do not contend for connections. Load
//! and health of the upstreams are shared by all workers.
//!
//! Not here: decisions (`tollgate-http`), client sockets (`tollgate-net`).

mod body;
mod connect;
mod demo;
mod detached;
mod forward;
mod gateway;
mod half_close;
mod head;
mod host;
mod http1;
mod override_headers;
mod pool;
mod problem;
mod settings;
mod throttle;
mod tunnel;
mod upstream;

pub use demo::Demo;
pub use gateway::{Gateway, StartError};
pub use http1::HeadLines;
pub use override_headers::OverrideHeaders;
pub use settings::{Forwarding, GatewaySettings, Http1Server, Target};
pub use throttle::{ThrottleConfig, ThrottleCounts};
pub use tollgate_overload::throttle::ThrottleSettings;
