//! File metadata that changes when a file changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The resolved path, device, inode, modification time and size of a file; `None` if it does not exist.
pub(crate) type FileStamp = Option<(PathBuf, u64, u64, i64, i64, u64)>;

/// Reads the stamp of a file.
pub(crate) fn stamp(file: &Path) -> FileStamp {
    // The target of a link is part of the stamp, because a new target may be a copy with the same
    // times.
    let (target, it) = (fs::canonicalize(file).ok()?, fs::metadata(file).ok()?);
    Some((target, it.dev(), it.ino(), it.mtime(), it.mtime_nsec(), it.len()))
}
