//! A program that has run to its end.

#![allow(clippy::panic, reason = "this is how a test fails")]

use std::fs;
use std::process::{Command, Stdio};

use crate::{Program, Scratch};

/// What a program left behind.
#[derive(Debug)]
pub struct ProgramOutput {
    /// Its exit status; none if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl ProgramOutput {
    /// Runs a program to its end; one that does not end fails the test.
    pub fn of(mut command: Command) -> Self {
        // Files and not pipes: a program that says much must not wait for us.
        let folder = Scratch::new();
        let file = |name: &str| folder.path().join(name);
        let write = |name: &str| Stdio::from(fs::File::create(file(name)).expect("there is room for a file"));
        command.stdout(write("stdout")).stderr(write("stderr"));
        let code = Program::start(command).wait().code();
        let read = |name: &str| fs::read_to_string(file(name)).expect("what it says is text");
        Self { code, stdout: read("stdout"), stderr: read("stderr") }
    }
}
