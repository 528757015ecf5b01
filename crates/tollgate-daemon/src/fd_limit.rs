//! Raises the limit of open file descriptors.
//!
//! The default soft limit is often 1,024 and the hard limit far higher. Without this, the gateway would
//! stop accepting at about a thousand connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximum number of connections of one listener on one worker.
const MAX_CONNECTIONS_PER_WORKER: usize = 20_000;
/// Each listener may use this fraction of the descriptors.
const SURFACE_FD_DIVISOR: usize = 4;

/// Returns the maximum number of connections of a listener on each worker. The rest is for other
/// listeners and files.
pub(crate) fn share(workers: usize) -> usize {
    share_of(getrlimit(Resource::Nofile).current, workers)
}

fn share_of(all: Option<u64>, workers: usize) -> usize {
    let all = all.and_then(|all| usize::try_from(all).ok()).unwrap_or(usize::MAX);
    (all / SURFACE_FD_DIVISOR / workers.max(1)).clamp(1, MAX_CONNECTIONS_PER_WORKER)
}

/// Raises the soft limit of open file descriptors to the hard limit, for the whole process.
pub fn allow_most() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "only {} files and connections can be open at once", current.unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_listener_takes_all_descriptors() {
        for (all, workers, each) in [
            (None, 4, MAX_CONNECTIONS_PER_WORKER),
            (Some(1_000_000), 2, MAX_CONNECTIONS_PER_WORKER),
            (Some(300), 2, 37),
            (Some(20_000), 2, 2_500),
            (Some(8), 4, 1),
        ] {
            assert_eq!(share_of(all, workers), each, "{all:?} for {workers}");
        }
        assert_eq!(share_of(Some(1_000), 0), 250);
    }
}
