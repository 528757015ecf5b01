//! As many open connections as the system allows.
//!
//! Shells hand out 1,024 descriptors and allow far more. A gateway that stops
//! accepting at its thousandth connection surprises everybody.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections of one surface on one worker.
const MAX_CONNECTIONS_PER_WORKER: usize = 20_000;
/// A surface gets so much of what may be open, so that none takes it all.
const SURFACE_FD_DIVISOR: usize = 4;

/// How many connections a surface may have at once, on each of so many workers. What is left is
/// for the others, and for files.
pub(crate) fn share(workers: usize) -> usize {
    share_of(getrlimit(Resource::Nofile).current, workers)
}

fn share_of(all: Option<u64>, workers: usize) -> usize {
    let all = all.and_then(|all| usize::try_from(all).ok()).unwrap_or(usize::MAX);
    (all / SURFACE_FD_DIVISOR / workers.max(1)).clamp(1, MAX_CONNECTIONS_PER_WORKER)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_surface_takes_all_that_may_be_open() {
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
