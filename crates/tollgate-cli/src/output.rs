//! Writing to standard output and standard error without minding who has left.
//!
//! `tollgate schema | head -1` closes the pipe early: that is no error of ours.

use std::io::{self, Write};

/// Writes text to standard output.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to standard output.
pub(crate) fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Writes text to standard error.
pub(crate) fn complain(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
