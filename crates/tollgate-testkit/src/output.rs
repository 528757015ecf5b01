//! The output of a program that has ended.

#![allow(clippy::panic, reason = "a panic fails the test")]

use std::fs;
use std::process::{Command, Stdio};

use crate::{Program, Scratch};

/// The output of a program that has ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit status; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl ProgramOutput {
    /// Runs a program to its end. A program that does not end fails the test.
    pub fn of(mut command: Command) -> Self {
        // Files instead of pipes: a program with much output must not block.
        let folder = Scratch::new();
        let file = |name: &str| folder.path().join(name);
        let write = |name: &str| Stdio::from(fs::File::create(file(name)).expect("the file can be created"));
        command.stdout(write("stdout")).stderr(write("stderr"));
        let code = Program::start(command).wait().code();
        let read = |name: &str| fs::read_to_string(file(name)).expect("the output is UTF-8");
        Self { code, stdout: read("stdout"), stderr: read("stderr") }
    }
}
