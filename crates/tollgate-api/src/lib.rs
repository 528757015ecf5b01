//! The JSON shapes of Tollgate's HTTP API, stated once.
//!
//! The server serializes these types, its `OpenAPI` document is generated from them, and the commands
//! of `tollgate` deserialize them. A client in Rust can use them, too:
//!
//! ```
//! use tollgate_api::Decision;
//!
//! let json = r#"{"allowed":false,"limit":"login","retry_after_ms":1500,"degraded":false,"soft":[],"limits":[]}"#;
//! let decision: Decision = serde_json::from_str(json)?;
//! assert!(!decision.allowed);
//! assert_eq!((decision.limit.as_deref(), decision.retry_after_ms), (Some("login"), Some(1500)));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Texts have a type parameter, so that a server can borrow them. A reader ignores members that it does
//! not know, so that it understands later servers.
//!
//! Not here: the meaning of the values (`tollgate`), requests that the server reads without copying
//! (`tollgate-server`).

mod decision;
mod mode;
mod schema;

pub use decision::{Decision, LimitOutcome};
pub use mode::{Change, Changes, LimitSwitch, Modes, Switched, SwitchedLimit};
pub use schema::schemas;
