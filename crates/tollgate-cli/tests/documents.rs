//! Every policy in the documents is valid and can be copied.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tollgate::Policy;
use tollgate_document::Document;
use tollgate_testkit::{ProgramOutput, Scratch};

use super::book::block::blocks;
use super::book::{policy_words, root};

/// Returns the documents that contain policies.
fn documents() -> Vec<PathBuf> {
    let in_each = |folder: &str, name: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path().join(name)).filter(|file| file.is_file()).collect()
    };
    let markdown = |folder: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|it| it == "md")).collect()
    };
    let single = [
        "README.md",
        "crates/tollgate-policy/FORMAT.md",
        "crates/tollgate-server/API.md",
        "deploy/README.md",
    ];
    let mut files: Vec<_> = single.iter().map(|file| root().join(file)).collect();
    files.extend(in_each("crates", "README.md"));
    files.extend(in_each("integrations", "README.md"));
    files.extend(markdown("docs"));
    files.extend(markdown("integrations"));
    files.sort();
    files
}

/// Returns the policies of a document, each with its line. Blocks that are parts of one have a marker.
fn policies(text: &str) -> Vec<(usize, String)> {
    let words = policy_words();
    let whole = blocks(text).into_iter().filter(|it| it.marked("not run").next().is_none());
    whole.filter_map(|block| Some((block.line + 1, block.policy(&words)?))).collect()
}

/// The page about lints: the first policy of each section shows its lint
/// (`tollgate-policy/tests/lints`).
const SHOWS_LINTS: &str = "docs/lints.md";

#[test]
fn no_policy_in_the_documents_has_a_lint_that_the_documents_recommend_to_fix() {
    let folder = Scratch::new();
    let mut names = Vec::new();
    for file in documents().into_iter().filter(|it| !it.ends_with(SHOWS_LINTS)) {
        let name = file.strip_prefix(root()).unwrap().display().to_string().replace('/', "-");
        for (line, policy) in policies(&fs::read_to_string(&file).unwrap()) {
            names.push(format!("{name}-{line}.yaml"));
            folder.write(names.last().unwrap(), &policy);
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder.path()).args(["validate", "--json"]).args(&names).env_clear();
    let finished = ProgramOutput::of(command);
    let mut found = Vec::new();
    for verdict in finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        // Files that a block names, such as a password, do not exist.
        let errors = verdict["errors"].as_array().unwrap().iter();
        let wrong = errors.filter(|it| !it["message"].as_str().unwrap().contains("there is no such"));
        found.extend(
            wrong
                .chain(verdict["warnings"].as_array().unwrap())
                .map(|it| format!("{}: {} {} {}", verdict["file"], it["code"], it["message"], it["label"])),
        );
    }
    assert_eq!(finished.stdout.lines().count(), names.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_reference_of_the_format_reads_as_a_document() {
    let text = fs::read_to_string(root().join("crates/tollgate-policy/FORMAT.md")).unwrap();
    assert!(text.starts_with("# "), "it has a title");
    assert_eq!(text.lines().filter(|line| line.starts_with("# ")).count(), 1, "and one only");
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_code ^= line.starts_with("```");
        // `[`Policy`]` is a link only for rustdoc.
        let mut rest = if in_code { "" } else { line };
        while let Some(at) = rest.find("[`") {
            let end = rest[at..].find("`]").map_or(rest.len(), |end| at + end + 2);
            assert!(rest[end..].starts_with('('), "line {number}: {line}");
            rest = &rest[end..];
        }
    }
}

#[test]
fn every_policy_in_the_documents_is_valid() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in documents() {
        for (line, policy) in policies(&fs::read_to_string(&file).unwrap()) {
            seen += 1;
            let policy = Document::parse(&policy).and_then(|it| Policy::from_document(&it));
            if let Err(mistakes) = policy {
                wrong.push(format!("{}:{line}\n{}", file.display(), mistakes.render("the block")));
            }
        }
    }
    assert!(seen >= 100, "only {seen} policies were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
