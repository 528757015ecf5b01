//! A directory of envoyproxy/ratelimit configuration files.
//!
//! It reads all `*.yaml` and `*.yml` files, sorted by name, without subdirectories and files that begin
//! with a dot: Kubernetes keeps the files of a `ConfigMap` in `..data`, and editors keep copies in such
//! files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::file_stamp::{FileStamp, stamp};
use super::{LoadPhase, files, shown};
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// The maximum number of files.
const MAX_FILES: usize = 1_000;
/// The maximum size of all files together.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// The contents of a directory, with stamps from just before it was read.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    /// The name and the text of each file.
    pub(crate) files: Vec<(String, String)>,
    /// The stamps of the directory and its files.
    pub(crate) looks: Vec<FileStamp>,
}

impl Folder {
    /// Reads a directory.
    pub(crate) fn read(folder: &Path, reading: LoadPhase) -> Result<Self, Failure> {
        // Before reading, so that a change during the read is detected afterwards.
        let looks = look_at(folder);
        let (name, paths) = (shown(folder), list(folder));
        let paths = paths.map_err(|error| {
            let why = reason(&error, Attempt::List);
            Failure::with_help(
                format_args!("cannot read {name}: {why}"),
                "`rls.envoy_config` is the folder with the *.yaml files of envoyproxy/ratelimit",
            )
        })?;
        if paths.len() > MAX_FILES {
            let count = paths.len();
            return Err(Failure::with_help(
                format_args!("{name} has {count} files: at most {MAX_FILES} are read"),
                "several domains may stand in one folder, and all limits of a domain in one file",
            ));
        }
        let (mut files, mut failures, mut left) =
            (Vec::with_capacity(paths.len()), Vec::new(), MAX_TOTAL_BYTES);
        for path in paths {
            match files::read(&path, reading) {
                Ok(text) => {
                    left = left.checked_sub(text.len()).ok_or_else(|| {
                        Failure::new(format_args!(
                            "the files in {name} are larger than {MAX_TOTAL_BYTES} bytes"
                        ))
                    })?;
                    files.push((shown(&path), text));
                }
                Err(failure) => failures.push(failure),
            }
        }
        if failures.is_empty() { Ok(Self { files, looks }) } else { Err(Failure::all(&failures)) }
    }
}

/// Returns the stamps of a directory and its files.
pub(crate) fn look_at(folder: &Path) -> Vec<FileStamp> {
    let files = list(folder).unwrap_or_default();
    std::iter::once(folder).chain(files.iter().take(MAX_FILES).map(PathBuf::as_path)).map(stamp).collect()
}

/// Returns the configuration files, sorted by name.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let is_yaml = path.extension().is_some_and(|it| it == "yaml" || it == "yml");
        if is_yaml && !is_hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    #[test]
    fn only_yaml_files_are_read_sorted_by_name() {
        let files = Scratch::new();
        fs::create_dir(files.path().join("deeper.yaml")).unwrap();
        for name in ["b.yml", "a.yaml", ".hidden.yaml", "notes.txt", "deeper.yaml/c.yaml"] {
            files.write(name, name);
        }
        let read = Folder::read(files.path(), LoadPhase::First).unwrap();
        let names: Vec<_> = read.files.iter().map(|(name, text)| (name.ends_with(text), &**text)).collect();
        assert_eq!(names, [(true, "a.yaml"), (true, "b.yml")]);
    }

    #[test]
    fn an_unreadable_directory_is_named_in_the_error() {
        let files = Scratch::new();
        let file = files.write("a.yaml", "");
        for (path, expected) in [
            (file, "a.yaml: it is not a directory"),
            (files.path().join("none"), "none: there is no such directory"),
        ] {
            let said = Folder::read(&path, LoadPhase::First).unwrap_err().to_string();
            assert!(said.contains(expected) && said.contains("rls.envoy_config"), "{said}");
        }
        files.write("b.yaml", "");
        fs::write(files.path().join("b.yaml"), [0xff]).unwrap();
        let said = Folder::read(files.path(), LoadPhase::First).unwrap_err().to_string();
        assert!(said.contains("b.yaml is not UTF-8: see line 1"), "{said}");
    }
}
