//! Reading a file, or saying why it cannot be read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::shown;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// More than the largest policy, which has its own message for too much.
const MAX_FILE_BYTES: u64 = 9 << 20;

/// When a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadPhase {
    /// At the start, from whatever can be read: `/dev/stdin`, `<(make-policy)`.
    First,
    /// While requests are served. Whoever reads also hears the signals, and must not
    /// wait for somebody to write into a pipe.
    Again,
}

/// The text of a file.
pub(crate) fn read(path: &Path, reading: LoadPhase) -> Result<String, Failure> {
    let name = shown(path);
    let is_other = |it: fs::Metadata| !it.is_file() && !it.is_dir();
    if reading == LoadPhase::Again && fs::metadata(path).is_ok_and(is_other) {
        return Err(Failure::with_help(
            format_args!("cannot read {name} again: it is a pipe or a device"),
            "put it into an ordinary file, or restart to read it",
        ));
    }
    let failed = |error: &io::Error| {
        Failure::new(format_args!("cannot read {name}: {}", reason(error, Attempt::Read)))
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let upto = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = upto.split(|byte| *byte == b'\n').count();
        Failure::with_help(format_args!("{name} is not UTF-8: see line {line}"), "save it as UTF-8")
    })
}

/// The password in a file: one line, and nothing else.
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
