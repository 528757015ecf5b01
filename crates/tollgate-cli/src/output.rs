//! Writes to standard output and standard error, and ignores closed pipes.
//!
//! `tollgate schema | head -1` closes the pipe early, which is not an error. A full disk is one: a
//! partial result must not look complete.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tollgate_daemon::Failure;
use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;

/// Writes text to standard output.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", &error, Attempt::Other))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard output.
pub(crate) fn line(line: &str) -> Result<(), Failure> {
    text(&format!("{line}\n"))
}

/// Writes text to a file.
pub(crate) fn file(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::io(format_args!("cannot write {}", shown(path)), &error, Attempt::Write);
    fs::write(path, text).map_err(failed)
}

/// Writes a new file; an existing one is never overwritten.
pub(crate) fn new_file(path: &Path, text: &str) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::io(format_args!("cannot write {}", shown(path)), &error, Attempt::Write),
    })
}

/// Returns the error about a file that exists.
pub(crate) fn exists(path: &Path) -> Failure {
    Failure::with_help(
        format_args!("{} is there already", shown(path)),
        "choose another name, or remove it first",
    )
}

/// Writes text to standard error.
pub(crate) fn complain(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
