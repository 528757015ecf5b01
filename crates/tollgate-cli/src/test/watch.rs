//! Reruns tests when a test file or a policy changes, is added or is removed.
//!
//! A file with a mistake is reported, and watched for a correction. An interrupt ends it successfully.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tollgate_daemon::configuration::LoadPhase;
use tollgate_daemon::io_error::Attempt;
use tollgate_daemon::{Failure, Watch};

use super::files::{self, TestFiles};
use super::jobs::Jobs;
use crate::arguments::Test;
use crate::output;

/// The interval between two polls. A change counts when two consecutive polls agree.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Clears the screen and moves the cursor to the top.
const CLEAR_SCREEN: &str = "\u{1b}[2J\u{1b}[H";

pub(super) fn run(arguments: &Test) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot wait for changes", &error, Attempt::Other))?;
    runtime.block_on(watch(arguments))
}

async fn watch(arguments: &Test) -> Result<ExitCode, Failure> {
    let failed = |error| Failure::io("cannot listen for signals", &error, Attempt::Other);
    let listen = |kind| signal(kind).map_err(failed);
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut found = files::find(&arguments.paths)?;
    let mut watch = once(arguments, &found)?;
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                // While no file is found, the last files are watched.
                let now = files::find(&arguments.paths).unwrap_or_else(|_| found.clone());
                if watch.has_changed() || now != found {
                    found = now;
                    watch = once(arguments, &found)?;
                }
            }
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Runs the tests, and returns the files to watch. Fails only if output fails.
fn once(arguments: &Test, found: &[TestFiles]) -> Result<Watch, Failure> {
    // The list of files is known only after reading. They are stamped before the second read, so that
    // a change in between is detected.
    let mut read = Vec::<PathBuf>::new();
    let _ = Jobs::read(found, LoadPhase::Again, &mut read);
    let watch = Watch::new(read);
    if io::stdout().is_terminal() {
        output::text(CLEAR_SCREEN)?;
    }
    match Jobs::read(found, LoadPhase::Again, &mut Vec::new()).and_then(|jobs| super::finish(arguments, jobs))
    {
        Ok(_) => {}
        Err(failure) => output::complain(&failure.to_string()),
    }
    output::complain("waiting for changes; Ctrl-C ends\n");
    Ok(watch)
}
