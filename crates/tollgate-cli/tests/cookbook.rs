//! The policies of the cookbook: valid without lints, tested in full, and described.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_testkit::ProgramOutput;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook").canonicalize().unwrap()
}

fn is_policy(name: &str) -> bool {
    name.strip_suffix(".yaml").is_some_and(|stem| !stem.contains('.'))
}

/// Returns the names of the policies.
fn policies() -> Vec<String> {
    let names = fs::read_dir(folder()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|it| is_policy(it)).collect();
    names.sort();
    names
}

fn run(arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder()).args(arguments).env_clear();
    ProgramOutput::of(command)
}

#[test]
fn every_policy_of_the_cookbook_passes_its_tests_which_cover_it() {
    let policies = policies();
    assert_eq!(policies.len(), 12, "{policies:?}");
    let finished = run(&["test", ".", "--min-coverage", "100%"]);
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    for policy in &policies {
        let tests = policy.replace(".yaml", ".test.yaml");
        assert!(finished.stdout.contains(&tests), "{policy} has no tests");
    }
}

#[test]
fn no_policy_of_the_cookbook_has_a_lint() {
    let policies = policies();
    let names: Vec<_> = policies.iter().map(String::as_str).collect();
    let finished = run(&[&["validate", "--strict"], names.as_slice()].concat());
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
}

#[test]
fn the_cookbook_shows_its_files() {
    let text = fs::read_to_string(folder().join("../cookbook.md")).unwrap();
    for policy in policies() {
        let name = policy.trim_end_matches(".yaml");
        assert!(text.contains(&format!("(cookbook/{policy})")), "{policy} is not described");
        assert!(
            text.contains(&format!("(cookbook/{name}.test.yaml)")),
            "the tests of {policy} are not linked"
        );
    }
}
