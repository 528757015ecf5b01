//! The service as a whole: the real binary, tested with real tools.
//!
//! `tools/README.md` describes the tools. `make test` installs them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

pub(crate) mod authority;
pub(crate) mod client;
pub(crate) mod process;
pub(crate) mod region;
mod tools;
mod upstream;

mod book;
mod crowd;
mod curl;
mod description;
mod ending;
mod load;
mod records;
mod reloads;
mod shedding;
mod slow_clients;
mod starting;
mod usage;
mod waiting;

use std::sync::{Mutex, MutexGuard, PoisonError};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A limit that is never reached, because these tests are about the service around it.
const ROOMY: &str = "limits:\n  - {name: roomy, by: ip, bucket: 100000000/second}\n";

/// Runs tests one at a time, because a test with high load would affect the next one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
