//! The client libraries of `clients/`, each with its own tests against this binary.
//!
//! `make test` installs their packages into `target/python` and `target/typescript`.
#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::process::Command;

use tollgate_testkit::Scratch;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs a command to its end and returns its output. The command must succeed.
#[track_caller]
fn run(mut command: Command) -> String {
    let program = command.get_program().display().to_string();
    let ended = command
        .env("TOLLGATE_BINARY", env!("CARGO_BIN_EXE_tollgate"))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; `make setup-test` installs it"));
    let output = [ended.stdout, ended.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(ended.status.success(), "{output}");
    output
}

#[test]
fn the_python_client_passes_its_tests() {
    let folder = root().join("clients/python");
    let mut python = Command::new(root().join("target/python/bin/python"));
    python
        .args(["-B", "-m", "unittest"])
        .current_dir(folder.join("tests"))
        .env("PYTHONPATH", folder.join("src"));
    let output = run(python);
    assert!(output.contains("\nOK"), "{output}");
}

#[test]
fn the_typescript_client_compiles_and_passes_its_tests() {
    let scratch = Scratch::new();
    let packages = root().join("target/typescript/node_modules");
    let mut compiler = Command::new("node");
    compiler
        .arg(packages.join("typescript/bin/tsc"))
        .arg("-p")
        .arg(root().join("clients/typescript"))
        .arg("--outDir")
        .arg(scratch.path())
        .arg("--typeRoots")
        .arg(packages.join("@types"));
    run(compiler);
    scratch.write("package.json", r#"{"type": "module"}"#);
    let mut node = Command::new("node");
    node.arg("--test").arg(scratch.path().join("test"));
    let output = run(node);
    assert!(output.contains("# fail 0") && output.contains("# skipped 0"), "{output}");
}
