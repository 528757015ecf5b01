//! A temporary folder.

use std::fs;
use std::path::{Path, PathBuf};

/// A temporary folder, which is removed when dropped.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Creates an empty folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be created"))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file atomically, as editors do: to a temporary file that is then renamed.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, beside) = (self.path().join(name), self.path().join(format!("{name}.new")));
        fs::write(&beside, text).expect("the file can be written");
        fs::rename(&beside, &path).expect("the folder is ours");
        path
    }
}
