//! Runs `promtool` on metrics, rules and expressions.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs it, and returns whether it succeeded and its output.
fn run(arguments: &[&str], folder: &Path, input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn();
    let mut program =
        started.unwrap_or_else(|error| panic!("cannot start promtool: {error}. `make test` installs it"));
    program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Fails unless it succeeds.
pub(crate) fn accepts(arguments: &[&str], folder: &Path) {
    let (content, said) = run(arguments, folder, "");
    assert!(content, "promtool {}:\n{said}", arguments.join(" "));
}

/// Returns its complaints about metrics.
pub(crate) fn complaints(metrics: &str) -> String {
    let (content, said) = run(&["check", "metrics"], Path::new("."), metrics);
    if content { said } else { format!("not accepted: {said}") }
}
