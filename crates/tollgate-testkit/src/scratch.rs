//! A folder that goes away with the test.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that goes away with the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// An empty folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room for a folder"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file as a whole, in the way editors do: beside, then in its place.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, beside) = (self.path().join(name), self.path().join(format!("{name}.new")));
        fs::write(&beside, text).expect("there is room for a file");
        fs::rename(&beside, &path).expect("the folder is ours");
        path
    }
}
