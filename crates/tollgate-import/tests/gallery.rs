//! Inputs and their imported policies side by side.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-import --test integration gallery` rewrites the results;
//! read them before you commit them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate_document::Diagnostics;
use tollgate_import::{ImportedPolicy, limitador, nginx};

#[allow(clippy::disallowed_methods, reason = "a switch for test runs, not for the product")]
fn blessing() -> bool {
    std::env::var("TOLLGATE_BLESS").is_ok()
}

fn ending(file: &Path) -> &str {
    file.extension().unwrap().to_str().unwrap()
}

/// Returns the inputs of a folder. Results end with `.policy.yaml` or `.txt`.
fn inputs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("gallery").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap().to_str().unwrap();
        !name.ends_with(".policy.yaml") && ending(file) != "txt"
    });
    files.sort();
    files
}

fn import(file: &Path) -> Result<ImportedPolicy, Diagnostics> {
    let name = file.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(file).unwrap();
    if ending(file) == "conf" { nginx(name, &text) } else { limitador(name, &text) }
}

/// Compares with the expected result beside the input, or writes it.
fn compare(file: &Path, ending: &str, found: &str, wrong: &mut Vec<String>) {
    let expected = file.with_extension(ending);
    let control = found.chars().find(|it| it.is_control() && *it != '\n');
    assert_eq!(control, None, "{}: it can be printed", file.display());
    if blessing() {
        fs::write(&expected, found).unwrap();
    } else if fs::read_to_string(&expected).ok().as_deref() != Some(found) {
        wrong.push(format!("{} is now:\n{found}", expected.display()));
    }
}

#[test]
fn every_file_becomes_the_policy_beside_it_and_that_can_be_read() {
    let mut wrong = Vec::new();
    for file in inputs("nginx").into_iter().chain(inputs("limitador")) {
        let imported = import(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let policy = Policy::parse(&imported.policy);
        policy.unwrap_or_else(|mistakes| panic!("{}: {mistakes}\n{}", file.display(), imported.policy));
        for note in &imported.notes {
            assert!(!note.contains(|it: char| it.is_control()), "{note:?}");
        }
        compare(&file, "policy.yaml", &imported.policy, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bad_file_says_where_and_what_to_change() {
    let mut wrong = Vec::new();
    for file in inputs("wrong") {
        let mistakes = import(&file).expect_err("it has a mistake");
        let name = file.file_name().unwrap().to_str().unwrap();
        compare(&file, "txt", &mistakes.render(name), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
