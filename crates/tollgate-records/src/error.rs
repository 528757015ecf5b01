//! Errors of opening and writing a decision log.

use std::io;
use std::path::PathBuf;

/// Error returned when a decision log cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordLogError {
    /// Another process writes to the directory. The caller needs a directory of its own.
    #[error("the records folder {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// Everyone may write to the directory. The caller changes its mode, or names another one.
    #[error("others may write to the records folder {}", .0.display())]
    Open(PathBuf),
    /// The operating system refused an operation. A later attempt may succeed. The message has the
    /// reason, without the number that [`io::Error`] adds.
    #[error("cannot use {}: {}", path.display(), reason(error))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl RecordLogError {
    /// Returns a conversion of errors about one file.
    pub(crate) fn of(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { path, error }
    }

    /// Returns the error of the operating system, if there is one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Returns the reason of an error of the operating system, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::StorageFull => "there is no room left on the disk",
        io::ErrorKind::QuotaExceeded => "the disk quota of this user is used up",
        io::ErrorKind::FileTooLarge => "the file would be larger than this process may write",
        io::ErrorKind::ReadOnlyFilesystem => "the disk is read-only",
        io::ErrorKind::PermissionDenied => "this user may not read or write it",
        io::ErrorKind::NotFound => "there is no such file or directory",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "there is a file of that name",
        _ => "",
    };
    if !known.is_empty() && error.raw_os_error().is_some() {
        return known.to_owned();
    }
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}
