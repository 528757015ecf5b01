//! A wall clock that a test steps under a running server. See `clock.c` for the mechanism.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::ProgramOutput;

/// The offset of one server's wall clock.
pub(super) struct SteppedClock {
    offset: fs::File,
    environment: Vec<(&'static str, OsString)>,
}

impl SteppedClock {
    /// Builds the preloaded library, and creates a clock without an offset.
    pub(super) fn new(folder: &Path) -> Self {
        let (source, library, file) =
            (folder.join("clock.c"), folder.join("clock.so"), folder.join("clock.offset"));
        fs::write(&source, include_str!("clock.c")).expect("the file can be written");
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let compiled = ProgramOutput::of(compile);
        assert_eq!(compiled.code, Some(0), "cannot build the clock: {}", compiled.stderr);
        let open = fs::File::options().read(true).write(true).create(true).truncate(true).open(&file);
        let clock = Self {
            offset: open.expect("the file can be written"),
            environment: vec![
                ("LD_PRELOAD", library.into_os_string()),
                ("TOLLGATE_TEST_CLOCK", file.into_os_string()),
            ],
        };
        clock.set(0);
        clock
    }

    /// Returns the environment variables of the server.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        self.environment.clone().into_iter()
    }

    /// Steps the clock forward or back, relative to its present time.
    pub(super) fn step(&self, seconds: i64) {
        let mut now = [0; 8];
        self.offset.read_exact_at(&mut now, 0).expect("the offset was written at creation");
        self.set(i64::from_ne_bytes(now) + seconds);
    }

    fn set(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("the offset can be written");
    }
}
