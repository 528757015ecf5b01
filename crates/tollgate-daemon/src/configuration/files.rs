//! Reads files, with messages for failures.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::shown;
use crate::failure::Failure;
use crate::io_error::Attempt;

/// The maximum size of a file; larger than the largest policy, which has its own message.
const MAX_FILE_BYTES: u64 = 9 << 20;

/// The time at which a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPhase {
    /// At the start, from any readable path: `/dev/stdin`, `<(make-policy)`.
    First,
    /// While requests are served. The reading thread also handles signals, so it must not block on a
    /// pipe.
    Again,
}

/// Reads a file as text.
pub fn read(path: &Path, reading: LoadPhase) -> Result<String, Failure> {
    let name = shown(path);
    let is_other = |it: fs::Metadata| !it.is_file() && !it.is_dir();
    if reading == LoadPhase::Again && fs::metadata(path).is_ok_and(is_other) {
        return Err(Failure::with_help(
            format_args!("cannot read {name} again: it is a pipe or a device"),
            "put it into an ordinary file, or restart to read it",
        ));
    }
    let failed = |error| Failure::io(format_args!("cannot read {name}"), &error, Attempt::Read);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| {
        let upto = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = upto.split(|byte| *byte == b'\n').count();
        Failure::with_help(format_args!("{name} is not UTF-8: see line {line}"), "save it as UTF-8")
    })
}

/// Reads a password file, which has exactly one line.
pub(crate) fn password(file: &Path, meant: &str, reading: LoadPhase) -> Result<String, Failure> {
    let text = read(file, reading)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failure::with_help(
            format_args!("the password file {} is empty", shown(file)),
            format_args!("put {meant} into it, or leave out `password_file`"),
        ));
    }
    if password.contains(['\r', '\n', '\0']) {
        return Err(Failure::with_help(
            format_args!("the password file {} has more than one line", shown(file)),
            format_args!("it holds {meant} and nothing else"),
        ));
    }
    Ok(password.to_owned())
}
