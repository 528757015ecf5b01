//! Other limiters' configuration as a Tollgate policy, with comments on what differs.
//!
//! Text goes in, text comes out: a policy that [`Policy::parse`](tollgate::Policy::parse)
//! accepts, whatever the names and values in the input are. What cannot be said in a policy
//! is not guessed: the limit stands there as a comment, with the reason.
//!
//! Not here: files and arguments (the binary), serving another limiter's files as they are
//! (`tollgate_envoy`).
//!
//! Invariant: nothing is let through more freely than before without a line that says so.
//! Held by the gallery (`tests/gallery.rs`) and by seeded noise (`tests/hostile.rs`).

mod envoy;
mod limitador;
mod nginx;
mod output;

pub use envoy::envoy;
pub use limitador::limitador;
pub use nginx::nginx;

/// A policy, and what its reader should know about how it came to be.
///
/// ```
/// let imported = tollgate_import::nginx("nginx.conf", "
///     limit_req_zone $binary_remote_addr zone=login:1m rate=5r/m;
///     server { location = /login { limit_req zone=login burst=4 nodelay; } }
/// ")?;
/// assert!(imported.policy.contains("bucket: 5/minute, burst 5"));
/// assert!(tollgate::Policy::parse(&imported.policy).is_ok());
/// # Ok::<(), tollgate::policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPolicy {
    /// The policy, as YAML with comments.
    pub policy: String,
    /// What differs, one line each; they stand in the policy as comments, too.
    pub notes: Vec<String>,
}
