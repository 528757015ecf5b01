//! As many open connections as the system allows.
//!
//! Shells hand out 1,024 descriptors and allow far more. A gateway that stops
//! accepting at its thousandth connection surprises everybody.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises what this process may open to what it is allowed to raise it to.
pub(crate) fn allow_most() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "only {} files and connections can be open at once", current.unwrap_or(u64::MAX));
    }
}
