//! The state directory, which keeps mode overrides, and optionally usage, over restarts.
//!
//! | file | content |
//! |---|---|
//! | `switches.json` | the overrides, replaced atomically |
//! | `changes.jsonl` | the recorded changes, one per line; `changes.jsonl.old` has older ones |
//! | `usage` | the usage of a store in memory, replaced atomically (`usage`) |
//! | `lock` | held by the process that uses the directory |
//!
//! An unusable directory is an error at the start, so that the operator notices before overrides are
//! lost. So is an unreadable file of overrides, because starting without it would silently undo them.
//! Later failures do not stop the process: an override that cannot be saved is in force, with a warning.
//!
//! Write access to the directory permits changing modes, so a directory that is writable for everyone
//! is rejected, and writes follow no links.
//!
//! - `restore`: applies the overrides at the start.
//! - `usage`: the usage of a store in memory. `saver`: saves it periodically.

mod restore;
mod saver;
mod usage;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tollgate_server::{Change, MAX_CHANGES, SavedOverrides, Switch};

pub(crate) use restore::restore;
pub(crate) use saver::{UsageSaver, open_store};
pub(crate) use usage::RuleHistory;

use crate::configuration::shown;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

const SWITCHES_FILE: &str = "switches.json";
const CHANGES_FILE: &str = "changes.jsonl";
const OLD_CHANGES_FILE: &str = "changes.jsonl.old";
const LOCK_FILE: &str = "lock";

/// The size at which the journal is rotated, replacing the previous old one.
const MAX_JOURNAL_BYTES: u64 = 1 << 20;
/// The maximum size of a file that is read. Our files are smaller.
const MAX_READ_BYTES: u64 = 8 << 20;

/// A state directory in use by this process.
pub(crate) struct State {
    folder: PathBuf,
    /// Released when the process ends.
    _lock: File,
}

/// The content of `switches.json`.
#[derive(Serialize, Deserialize)]
struct Switches {
    /// The override of everything.
    everything: Switch,
    /// The overrides of limits, by name.
    limits: BTreeMap<String, Switch>,
}

impl State {
    /// Opens and locks a directory, and reads its overrides.
    pub(crate) fn open(folder: &Path) -> Result<(Self, SavedOverrides), Failure> {
        let name = shown(folder);
        let failed = |error: &io::Error| {
            Failure::with_help(
                format_args!("cannot use the state folder {name}: {}", why(error)),
                "it has to be a folder that this user may write to; without `state`, switches last until the next restart",
            )
        };
        if !folder.is_dir() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| failed(&error))?;
        }
        guarded(folder)?;
        let lock = private().create(true).truncate(false).open(folder.join(LOCK_FILE));
        let lock = lock.map_err(|error| failed(&error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::with_help(
                format_args!("the state folder {name} is in use by another process"),
                "each process needs a folder of its own: --set state=FOLDER",
            ),
            TryLockError::Error(error) => failed(&error),
        })?;
        let saved = read(folder)?;
        let state = Self { folder: folder.to_owned(), _lock: lock };
        // Writes once at the start, to detect a full or read-only file system.
        state.write_switches(&saved).map_err(|error| failed(&error))?;
        Ok((state, saved))
    }

    /// Checks whether the directory could be read, for `validate`. Creates and locks nothing.
    pub(crate) fn check(folder: &Path) -> Result<(), Failure> {
        match fs::metadata(folder) {
            Ok(there) if !there.is_dir() => {
                Err(Failure::new(format_args!("the state folder {} is a file", shown(folder))))
            }
            Ok(_) => guarded(folder).and_then(|()| read(folder)).map(drop),
            // It would be created.
            Err(_) => Ok(()),
        }
    }

    /// Saves the overrides; returns the reason of a failure.
    pub(crate) fn keep(&self, saved: &SavedOverrides, change: &Change) -> Result<(), String> {
        if let Err(error) = self.append(change) {
            let error = reason(&error, Attempt::Write);
            tracing::warn!(%error, "a change could not be written to the journal");
        }
        self.write_switches(saved).map_err(|error| {
            let text = format!("cannot write to {}: {}", shown(&self.folder), why(&error));
            tracing::error!("a switch is in force, and could not be kept: {text}");
            text
        })
    }

    fn write_switches(&self, saved: &SavedOverrides) -> io::Result<()> {
        let switches = Switches { everything: saved.everything, limits: saved.limits.clone() };
        let mut text = serde_json::to_vec_pretty(&switches)?;
        text.push(b'\n');
        let (path, beside) = (self.folder.join(SWITCHES_FILE), self.folder.join("switches.json.new"));
        let mut file = private().create(true).truncate(true).open(&beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        // Makes the rename durable too.
        File::open(&self.folder)?.sync_all()
    }

    fn append(&self, change: &Change) -> io::Result<()> {
        let path = self.folder.join(CHANGES_FILE);
        if fs::metadata(&path).is_ok_and(|it| it.len() > MAX_JOURNAL_BYTES) {
            fs::rename(&path, self.folder.join(OLD_CHANGES_FILE))?;
        }
        let mut file = private().create(true).read(true).append(true).open(&path)?;
        // A truncated last line must not corrupt this one.
        let mut line = if ends_a_line(&mut file)? { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut line, change)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()
    }
}

/// Whether the file ends with a line break or is empty.
fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Checks that no other user may write to the directory. A missing one is created later, for this user
/// only.
fn guarded(folder: &Path) -> Result<(), Failure> {
    let Ok(there) = fs::metadata(folder) else { return Ok(()) };
    if !is_open(there.mode(), there.uid(), rustix::process::geteuid().as_raw()) {
        return Ok(());
    }
    let name = shown(folder);
    Err(Failure::with_help(
        format_args!("others may write to the state folder {name}, and switch limits so"),
        format_args!("chmod go-w {name}, or name a folder in it: that is made for this user alone"),
    ))
}

/// Whether everyone may write to it, or a group may and the owner is neither this user nor root.
const fn is_open(mode: u32, owner: u32, us: u32) -> bool {
    mode & 0o002 != 0 || (mode & 0o020 != 0 && owner != us && owner != 0)
}

/// Reads the content of a directory.
fn read(folder: &Path) -> Result<SavedOverrides, Failure> {
    let path = folder.join(SWITCHES_FILE);
    let damaged = |error: &dyn std::fmt::Display| {
        let (file, name) = (shown(&path), shown(folder));
        Failure::with_help(
            format_args!("cannot read the switches in {file}: {error}"),
            format_args!(
                "put the file right, or move it away to begin with the modes of the policy: mv {file} {name}/switches.damaged"
            ),
        )
    };
    let switches = match bytes(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Switches { everything: Switch::default(), limits: BTreeMap::new() }
        }
        Err(error) => return Err(damaged(&reason(&error, Attempt::Read))),
    };
    let Switches { everything, limits } = switches;
    Ok(SavedOverrides { everything, limits, changes: changes(folder) })
}

/// Reads the last changes, the oldest first. Skips unreadable lines: the last one may be truncated by a
/// crash.
fn changes(folder: &Path) -> VecDeque<Change> {
    let mut changes = VecDeque::new();
    for name in [OLD_CHANGES_FILE, CHANGES_FILE] {
        let bytes = match bytes(&folder.join(name)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let error = reason(&error, Attempt::Read);
                tracing::warn!(file = name, %error, "the journal of changes cannot be read");
                continue;
            }
        };
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(change) = serde_json::from_slice(line) else {
                tracing::warn!(file = name, "a line of the journal of changes cannot be read");
                continue;
            };
            changes.push_back(change);
            if changes.len() > MAX_CHANGES {
                changes.pop_front();
            }
        }
    }
    changes
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Options for files that only this user may read, because the journal has names and reasons. Does not
/// follow links.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

fn why(error: &io::Error) -> String {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return "a file in it is a symbolic link".to_owned();
    }
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "there is a file of that name".to_owned()
        }
        _ => reason(error, Attempt::Write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tollgate_server::Role;
    use tollgate_testkit::Scratch;

    fn change(reason: &str) -> Change {
        Change {
            at: "2026-11-15T00:00:00Z".into(),
            limit: Some("a".into()),
            from: Switch::Policy,
            to: Switch::Shadow,
            reason: reason.into(),
            by: "ann".into(),
            role: Role::Admin,
            peer: None,
            certificate: None,
        }
    }

    fn saved() -> SavedOverrides {
        SavedOverrides {
            everything: Switch::Off,
            limits: [("a".to_owned(), Switch::Shadow)].into(),
            changes: [change("x")].into(),
        }
    }

    #[test]
    fn saved_overrides_are_restored_and_private() {
        let files = Scratch::new();
        let folder = files.path().join("one/two");
        {
            let (state, found) = State::open(&folder).unwrap();
            assert_eq!(found, SavedOverrides::default());
            state.keep(&saved(), &change("x")).unwrap();
        }
        assert_eq!(State::open(&folder).unwrap().1, saved());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(SWITCHES_FILE))), (0o700, 0o600));
    }

    #[test]
    fn a_directory_is_locked_by_one_process() {
        let files = Scratch::new();
        let (_first, _) = State::open(files.path()).unwrap();
        let said = State::open(files.path()).map(drop).unwrap_err().to_string();
        assert!(said.contains("in use by another process"), "{said}");
    }

    #[test]
    fn an_unusable_directory_is_an_error_at_the_start() {
        let files = Scratch::new();
        let file = files.write("file", "x");
        for path in [file.clone(), file.join("below")] {
            let said = State::open(&path).map(drop).unwrap_err().to_string();
            assert!(said.contains("there is a file of that name"), "{said}");
        }
        assert!(State::check(&file).is_err() && State::check(&files.path().join("none")).is_ok());
        for damaged in ["", "{", "{\"everything\":\"loud\",\"limits\":{}}"] {
            files.write(SWITCHES_FILE, damaged);
            let said = State::open(files.path()).map(drop).unwrap_err().to_string();
            assert!(said.contains("cannot read the switches") && said.contains("mv "), "{said}");
            assert!(State::check(files.path()).is_err());
        }
    }

    #[test]
    fn the_journal_is_rotated_and_a_truncated_line_is_skipped() {
        let files = Scratch::new();
        let (state, _) = State::open(files.path()).unwrap();
        let line = serde_json::to_string(&change(&"x".repeat(300))).unwrap() + "\n";
        let lines = usize::try_from(MAX_JOURNAL_BYTES).unwrap() / line.len() + 1;
        fs::write(files.path().join(CHANGES_FILE), line.repeat(lines)).unwrap();
        state.append(&change("y")).unwrap();
        let size = |name: &str| fs::metadata(files.path().join(name)).unwrap().len();
        assert!(size(CHANGES_FILE) < 1024 && size(OLD_CHANGES_FILE) > MAX_JOURNAL_BYTES);
        let found = changes(files.path());
        assert_eq!((found.len(), &*found[MAX_CHANGES - 1].reason), (MAX_CHANGES, "y"));
        fs::write(files.path().join(CHANGES_FILE), "{\"at\":\"2026").unwrap();
        assert_eq!(changes(files.path()).len(), MAX_CHANGES);
    }

    #[test]
    fn an_unreadable_line_does_not_affect_other_lines() {
        let files = Scratch::new();
        let (state, _) = State::open(files.path()).unwrap();
        let path = files.path().join(CHANGES_FILE);
        let append = |bytes: &[u8]| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(bytes).unwrap();
        };
        let mut expected = Vec::new();
        for (at, torn) in
            [&b"{\"at\":\"2026"[..], b"\xff\xfe\n", b"{\"reason\":\"\xe9", b"\n\n"].iter().enumerate()
        {
            append(torn);
            let reason = at.to_string();
            state.append(&change(&reason)).unwrap();
            expected.push(reason);
        }
        let found: Vec<_> = changes(files.path()).into_iter().map(|it| it.reason).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_directory_writable_for_others_is_rejected() {
        for (mode, owner, expected) in [
            (0o40700, 7, false),
            (0o40755, 8, false),
            (0o40775, 7, false),
            (0o42775, 0, false),
            (0o40775, 8, true),
            (0o40777, 7, true),
            (0o41777, 0, true),
        ] {
            assert_eq!(is_open(mode, owner, 7), expected, "{mode:o} {owner}");
        }
        let files = Scratch::new();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let said = State::open(files.path()).map(drop).unwrap_err().to_string();
        assert!(
            said.contains("others may write to the state folder") && said.contains("chmod go-w"),
            "{said}"
        );
        assert!(State::check(files.path()).is_err());
        assert!(State::open(&files.path().join("below")).is_ok());
    }

    #[test]
    fn writes_follow_no_links() {
        for name in [LOCK_FILE, "switches.json.new", CHANGES_FILE] {
            let files = Scratch::new();
            let synonyms = files.write("elsewhere", "untouched");
            let folder = files.path().join("state");
            fs::create_dir(&folder).unwrap();
            std::os::unix::fs::symlink(&synonyms, folder.join(name)).unwrap();
            match State::open(&folder) {
                Ok((state, _)) => {
                    assert!(name == CHANGES_FILE && state.append(&change("x")).is_err(), "{name}");
                }
                Err(said) => assert!(said.to_string().contains("is a symbolic link"), "{said}"),
            }
            assert_eq!(fs::read_to_string(&synonyms).unwrap(), "untouched", "{name}");
        }
    }

    #[test]
    fn an_override_that_cannot_be_saved_has_a_reason() {
        let files = Scratch::new();
        let folder = files.path().join("state");
        let (state, _) = State::open(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = state.keep(&saved(), &change("x")).unwrap_err();
        assert!(said.contains("cannot write to"), "{said}");
    }
}
