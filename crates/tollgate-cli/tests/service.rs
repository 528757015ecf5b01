//! The service as a whole: the real binary, tested with real tools.
//!
//! `tools/README.md` describes the tools. `make test` installs them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "other programs keep real time")]

#[allow(dead_code, reason = "other tests need more of it")]
#[path = "service/client.rs"]
mod client;
#[path = "service/process.rs"]
mod process;
#[path = "service/tools.rs"]
mod tools;
#[path = "service/upstream.rs"]
mod upstream;

#[path = "service/crowd.rs"]
mod crowd;
#[path = "service/curl.rs"]
mod curl;
#[path = "service/description.rs"]
mod description;
#[path = "service/ending.rs"]
mod ending;
#[path = "service/load.rs"]
mod load;
#[path = "service/reloads.rs"]
mod reloads;
#[path = "service/slow_clients.rs"]
mod slow_clients;
#[path = "service/starting.rs"]
mod starting;

use std::sync::{Mutex, MutexGuard, PoisonError};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A limit that is never reached, because these tests are about the service around it.
const ROOMY: &str = "limits:\n  - {name: roomy, by: ip, bucket: 100000000/second}\n";

/// Runs tests one at a time, because a test with high load would affect the next one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
