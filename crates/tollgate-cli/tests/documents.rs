//! What the documents show can be copied: every policy in them is one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate::policy::Document;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents that show policies.
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
    let mut files = vec![root().join("README.md"), root().join("crates/tollgate-policy/FORMAT.md")];
    files.extend(in_each("crates", "README.md"));
    files.extend(in_each("integrations", "README.md"));
    files.extend(markdown("docs"));
    files.extend(markdown("integrations"));
    files.sort();
    files
}

/// The blocks of a document that are YAML, each with the line it begins in.
fn yaml_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let (mut is_yaml, mut inside, mut indent) = (false, false, 0);
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            is_yaml = !inside && matches!(kind.trim(), "yaml" | "yml");
            inside = !inside;
            if is_yaml {
                indent = line.len() - line.trim_start().len();
                blocks.push((number + 1, String::new()));
            }
        } else if is_yaml && let Some((_, block)) = blocks.last_mut() {
            block.push_str(line.get(indent..).unwrap_or_default());
            block.push('\n');
        }
    }
    blocks
}

#[test]
fn every_policy_in_the_documents_is_understood() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in documents() {
        for (line, block) in yaml_blocks(&fs::read_to_string(&file).unwrap()) {
            if !block.lines().any(|line| line.starts_with("limits:")) {
                continue;
            }
            seen += 1;
            let policy = Document::parse(&block).and_then(|it| Policy::from_document(&it));
            if let Err(mistakes) = policy {
                wrong.push(format!("{}:{line}\n{}", file.display(), mistakes.render("the block")));
            }
        }
    }
    assert!(seen >= 4, "only {seen} policies were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
