//! A wall clock that a test steps under a running server. `clock.c` says how and why.

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
    /// Builds the library that is preloaded, and a clock that is right.
    pub(super) fn new(folder: &Path) -> Self {
        let (source, library, file) =
            (folder.join("clock.c"), folder.join("clock.so"), folder.join("clock.offset"));
        fs::write(&source, include_str!("clock.c")).expect("there is room for a file");
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let compiled = ProgramOutput::of(compile);
        assert_eq!(compiled.code, Some(0), "cannot build the clock: {}", compiled.stderr);
        let open = fs::File::options().read(true).write(true).create(true).truncate(true).open(&file);
        let clock = Self {
            offset: open.expect("there is room for a file"),
            environment: vec![
                ("LD_PRELOAD", library.into_os_string()),
                ("TOLLGATE_TEST_CLOCK", file.into_os_string()),
            ],
        };
        clock.set(0);
        clock
    }

    /// What the server's environment needs.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        self.environment.clone().into_iter()
    }

    /// Steps the clock, forward or back, from where it is.
    pub(super) fn step(&self, seconds: i64) {
        let mut now = [0; 8];
        self.offset.read_exact_at(&mut now, 0).expect("it was written when it was made");
        self.set(i64::from_ne_bytes(now) + seconds);
    }

    fn set(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("there is room for eight bytes");
    }
}
