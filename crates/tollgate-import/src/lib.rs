//! Imports the configuration of other rate limiters as a Tollgate policy, with comments on differences.
//!
//! Each function converts text into a policy that [`Policy::parse`](tollgate::Policy::parse)
//! accepts, for all names and values in the input. A limit that a policy cannot express
//! is never approximated silently: it becomes a comment with the reason.
//!
//! The binary reads files and arguments. `tollgate_envoy` serves files of envoyproxy/ratelimit as
//! they are.
//!
//! Invariant: a policy that admits more than the input says so in a comment.
//! Tested by the gallery (`tests/gallery.rs`) and by seeded noise (`tests/hostile.rs`).

mod envoy;
mod limitador;
mod nginx;
mod output;

pub use envoy::envoy;
pub use limitador::limitador;
pub use nginx::nginx;

/// An imported policy, with notes on its differences from the input.
///
/// ```
/// let imported = tollgate_import::nginx("nginx.conf", "
///     limit_req_zone $binary_remote_addr zone=login:1m rate=5r/m;
///     server { location = /login { limit_req zone=login burst=4 nodelay; } }
/// ")?;
/// assert!(imported.policy.contains("bucket: 5/minute, burst 5"));
/// assert!(tollgate::Policy::parse(&imported.policy).is_ok());
/// # Ok::<(), tollgate_document::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPolicy {
    /// The policy, as YAML with comments.
    pub policy: String,
    /// The differences, one line each. The policy contains them as comments, too.
    pub notes: Vec<String>,
}
