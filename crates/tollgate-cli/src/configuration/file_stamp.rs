//! What a file looks like from outside, to notice that it has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where it is in truth, which one it is, when it was written and how long it is; `None`
/// when it is not there.
pub(crate) type FileStamp = Option<(PathBuf, u64, u64, i64, i64, u64)>;

/// Looks.
pub(crate) fn stamp(file: &Path) -> FileStamp {
    // Where a link leads is part of the look: its target may be a copy with the same times.
    let (target, it) = (fs::canonicalize(file).ok()?, fs::metadata(file).ok()?);
    Some((target, it.dev(), it.ino(), it.mtime(), it.mtime_nsec(), it.len()))
}
