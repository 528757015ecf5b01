//! Runs tests again whenever one of their files, or a policy, changes; also when a file of tests comes or goes.
//!
//! A file with a mistake is shown and waited for. It ends when it is interrupted, and that is no failure.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::files::{self, TestFiles};
use super::jobs::Jobs;
use crate::arguments::Test;
use crate::configuration::LoadPhase;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};
use crate::output;
use crate::reload::Watch;

/// Between two looks. A change counts when two of them agree.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// To the top of an empty screen.
const CLEAR_SCREEN: &str = "\u{1b}[2J\u{1b}[H";

pub(super) fn run(arguments: &Test) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(format_args!("cannot wait for changes: {}", reason(&error, Attempt::Other)))
    })?;
    runtime.block_on(watch(arguments))
}

async fn watch(arguments: &Test) -> Result<ExitCode, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| {
            Failure::new(format_args!("cannot listen for signals: {}", reason(&error, Attempt::Other)))
        })
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut found = files::find(&arguments.paths)?;
    let mut watch = once(arguments, &found)?;
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                // While there is no file to be found, what was found last is waited for.
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

/// Runs them, and says what to look at from now on. Ends only when nobody could be told.
fn once(arguments: &Test, found: &[TestFiles]) -> Result<Watch, Failure> {
    // Which files there are is known when they were read; they are looked at before they are read for good, or a change in
    // between would go unnoticed.
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
