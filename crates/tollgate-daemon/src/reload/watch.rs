//! Detects changed files by polling.
//!
//! Polling works on network file systems, for files that an editor replaces, and for the links that
//! Kubernetes swaps. A change counts when two consecutive polls agree, so that a file is not read while
//! it is written.

use std::path::PathBuf;

use crate::configuration::{FileStamp, stamp, stamp_folder};

/// Polls files for changes.
#[derive(Debug)]
pub struct Watch {
    files: Vec<PathBuf>,
    /// A directory whose configuration files are polled, including new ones.
    folder: Option<PathBuf>,
    /// The stamps when the files were last read.
    read: Vec<FileStamp>,
    /// The stamps at the last poll.
    last: Vec<FileStamp>,
}

impl Watch {
    /// Starts watching. Call it before the files are first read, so that a change in between is
    /// detected.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let looks: Vec<_> = files.iter().map(|it| stamp(it)).collect();
        Self { files, folder: None, read: looks.clone(), last: looks }
    }

    /// Adds a directory, with its stamps from just before it was read.
    pub(crate) fn add_folder(&mut self, folder: PathBuf, looks: Vec<FileStamp>) {
        self.read.extend(looks.iter().cloned());
        self.last.extend(looks);
        self.folder = Some(folder);
    }

    /// Polls; returns true once when a change has settled.
    pub fn has_changed(&mut self) -> bool {
        let now = self.stamp();
        self.settle(now)
    }

    /// Marks the current state as read, because the files are read for another reason.
    pub(crate) fn reading(&mut self) {
        self.read = self.stamp();
        self.last.clone_from(&self.read);
    }

    fn stamp(&self) -> Vec<FileStamp> {
        let folder = self.folder.iter().flat_map(|it| stamp_folder(it));
        self.files.iter().map(|it| stamp(it)).chain(folder).collect()
    }

    fn settle(&mut self, now: Vec<FileStamp>) -> bool {
        let at_rest = now == self.last;
        self.last = now;
        let changed = at_rest && self.last != self.read;
        if changed {
            self.read.clone_from(&self.last);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tollgate_testkit::Scratch;

    fn size(length: u64) -> Vec<FileStamp> {
        vec![Some((PathBuf::new(), 0, 0, 0, 0, length))]
    }

    #[test]
    fn a_change_counts_once_when_two_polls_agree() {
        let mut watch = Watch { files: Vec::new(), folder: None, read: size(1), last: size(1) };
        let looks =
            [(1, false), (2, false), (3, false), (3, true), (3, false), (1, false), (1, true), (1, false)];
        for (at, (length, changed)) in looks.into_iter().enumerate() {
            assert_eq!(watch.settle(size(length)), changed, "look {at}");
        }
        // Back to the read state before two polls agreed, so nothing has changed.
        assert!(!watch.settle(size(9)) && !watch.settle(size(1)) && !watch.settle(size(1)));
    }

    #[test]
    fn a_removed_and_restored_file_has_changed_twice() {
        let files = Scratch::new();
        let path = files.write("policy.yaml", "a");
        let mut watch = Watch::new(vec![path.clone()]);
        assert!(!watch.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!watch.has_changed() && watch.has_changed() && !watch.has_changed());
        files.write("policy.yaml", "a");
        assert!(!watch.has_changed() && watch.has_changed() && !watch.has_changed());
    }

    #[test]
    fn a_link_with_a_new_target_has_changed() {
        // As in Kubernetes: policy.yaml points through ..data to a directory, and ..data is swapped.
        let files = Scratch::new();
        for folder in ["one", "two"] {
            fs::create_dir(files.path().join(folder)).unwrap();
            files.write(&format!("{folder}/policy.yaml"), "same");
        }
        let data = files.path().join("..data");
        symlink("one", &data).unwrap();
        let path = files.path().join("policy.yaml");
        symlink("..data/policy.yaml", &path).unwrap();
        let mut watch = Watch::new(vec![path]);
        assert!(!watch.has_changed() && !watch.has_changed());
        let swapped = files.path().join("..data_tmp");
        symlink("two", &swapped).unwrap();
        fs::rename(&swapped, &data).unwrap();
        assert!(!watch.has_changed() && watch.has_changed() && !watch.has_changed());
    }

    #[test]
    fn added_removed_and_changed_files_of_a_directory_are_detected() {
        let files = Scratch::new();
        files.write("a.yaml", "a");
        let folder = files.path().to_owned();
        let mut watch = Watch::new(Vec::new());
        watch.add_folder(folder.clone(), stamp_folder(&folder));
        assert!(!watch.has_changed() && !watch.has_changed());
        for change in 0..3 {
            match change {
                0 => drop(files.write("b.yml", "b")),
                1 => drop(files.write("a.yaml", "other")),
                _ => fs::remove_file(folder.join("a.yaml")).unwrap(),
            }
            assert!(!watch.has_changed() && watch.has_changed() && !watch.has_changed(), "{change}");
        }
    }

    #[test]
    fn files_read_for_another_reason_are_not_read_again() {
        let files = Scratch::new();
        let path = files.write("policy.yaml", "a");
        let mut watch = Watch::new(vec![path]);
        files.write("policy.yaml", "bc");
        watch.reading();
        assert!(!watch.has_changed() && !watch.has_changed());
    }
}
