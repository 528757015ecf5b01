//! The process contract of envoyproxy/ratelimit: its environment variables, and its listeners beside gRPC.
//!
//! - `variables`: the known variables, and their values.
//! - `inputs`: the configuration that they describe.
//! - `listeners`: health, `/json`, `/rlconfig` and metrics.
//!
//! Tested by `tollgate-cli/tests/ratelimit.rs`, with the environment of a Deployment of Envoy Gateway.

mod inputs;
mod listeners;
mod variables;

pub(crate) use listeners::{RatelimitListeners, RatelimitSources};
pub use variables::RatelimitVariables;

/// The addresses of the listeners that envoyproxy/ratelimit has beside gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RatelimitPorts {
    /// Health checks and `/json`.
    pub(crate) http: String,
    /// `/rlconfig`.
    pub(crate) debug: String,
    /// The address and the path of metrics.
    pub(crate) metrics: Option<(String, String)>,
    /// Whether health checks fail until there is a configuration.
    pub(crate) needs_config: bool,
}
