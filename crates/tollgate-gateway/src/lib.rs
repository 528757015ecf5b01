//! The gateway: a reverse proxy behind the tower layer.
//!
//! ```text
//! connection (tollgate-net) ─► Limit (tollgate-http) ─► Forward ─► choose an upstream ─► a connection of its pool
//!                                │ refused: no body read,   │ malformed: 400      │ down: 502, slow: 504,
//!                                │ no upstream touched      │ too large: 413      │ ejected for a while
//! ```
//!
//! Each worker has pools of its own, so that no two threads meet over a
//! connection; how busy an upstream is and whether it is down they know together.
//!
//! Not here: who may pass (`tollgate-http`), sockets of clients (`tollgate-net`).

mod body;
mod connect;
mod demo;
mod detached;
mod forward;
mod gateway;
mod head;
mod override_headers;
mod pool;
mod problem;
mod settings;
mod tunnel;
mod upstream;

pub use demo::Demo;
pub use gateway::{Gateway, StartError};
pub use override_headers::OverrideHeaders;
pub use settings::{Forwarding, GatewaySettings, Target};
