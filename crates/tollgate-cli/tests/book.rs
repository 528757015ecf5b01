//! Every code block of README.md and of the book is run, or says why it is not.
//!
//! - `console`: a line with `$` is run in a shell, and its output is compared with the lines after it. Numbers that depend on
//!   the time, and ids, are masked; `…` stands for any text.
//! - `sh`: each line is run and succeeds. Targets of `make` exist.
//! - `yaml`: a policy (`documents` validates it), a file of envoyproxy/ratelimit, or a file that commands of the page use.
//! - Rust in the README of a crate is a doc-test.
//! - `json` is the output of the command before it.
//!
//! Servers listen on free ports, which replace those of the page. Markers are described in `book/block.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

pub(crate) mod block;
mod likeness;
mod session;

use std::fs;
use std::path::{Path, PathBuf};

use block::{Block, blocks};
use likeness::{differences, is_like, masked, without_comment};
use session::Session;

/// The maximum number of words of README.md.
const MAX_README_WORDS: usize = 900;
/// The number of blocks with a marker `not run`. A block that cannot be run needs a reason, and a larger number here.
const NOT_RUN_BLOCKS: usize = 31;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the pages of the book, relative to the root.
fn pages() -> Vec<String> {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|it| it.split(')').next());
    links.map(|it| it.strip_prefix("../").map_or_else(|| format!("docs/{it}"), str::to_owned)).collect()
}

/// Returns the words at the top of a policy file.
pub(crate) fn policy_words() -> Vec<String> {
    let schema = fs::read_to_string(root().join("docs/policy.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

/// A page whose blocks are run, in order.
struct Page<'p> {
    name: &'p str,
    words: &'p [String],
    makefile: &'p str,
    session: Session,
    failures: Vec<String>,
    not_run: usize,
}

impl Page<'_> {
    fn fail(&mut self, block: &Block, what: &str) {
        self.failures.push(format!("{}:{}: {what}", self.name, block.line));
    }

    fn run(&mut self, block: &Block) {
        for hidden in block.marked("run") {
            let output = self.session.run(hidden);
            if output.code != Some(0) {
                self.fail(block, &format!("hidden command {hidden}\n{}{}", output.stdout, output.stderr));
            }
        }
        if block.marked("not run").next().is_some() {
            self.not_run += 1;
            return;
        }
        if let Some(test) = block.marked("tested by").next() {
            let reads_page = fs::read_to_string(root().join(test))
                .is_ok_and(|test| self.name.rsplit('/').next().is_some_and(|file| test.contains(file)));
            if !reads_page {
                self.fail(block, &format!("{test} does not test this page"));
            }
            return;
        }
        match block.kind.as_str() {
            "yaml" => self.yaml(block),
            "console" => self.console(block),
            "sh" => self.shell(block),
            "json" if block.has_marker("output") => self.json(block, true),
            "json" if block.has_marker("shape of the output") => self.json(block, false),
            _ if block.text.lines().all(|line| line.starts_with("make ")) => self.shell(block),
            kind if matches!(kind, "" | "no_run") || kind.starts_with("rust") => self.doc_test(block),
            // Generated, without markers. The tests of tollgate-policy read the page.
            "text" if self.name == "docs/lints.md" => {}
            _ => self.fail(block, "no test runs the block; see tests/book/block.rs for markers"),
        }
    }

    fn yaml(&mut self, block: &Block) {
        if let Some(file) = block.file() {
            self.session.files.write(file, &block.text);
        }
        let is_test_file = block.has_key("tests") && block.file().is_some();
        if block.has_key("domain") {
            self.session.files.write("block.yaml", &block.text);
            let output = self.session.run("tollgate import envoy block.yaml");
            if output.code != Some(0) {
                self.fail(block, &output.stderr);
            }
        } else if block.policy(self.words).is_none() && !is_test_file {
            self.fail(block, "neither a policy nor a file; see tests/book/block.rs for markers");
        }
    }

    /// Runs a block, and compares its output.
    fn console(&mut self, block: &Block) {
        let mut lines = block.text.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("$ ") else {
                return self.fail(block, &format!("not a command: {line}"));
            };
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(masked(without_comment(line)));
            }
            let output = self.session.run(without_comment(command));
            let printed: Vec<_> = output.stdout.lines().chain(output.stderr.lines()).map(masked).collect();
            if !is_like(&printed, &expected) {
                let (printed, expected) = (printed.join("\n"), expected.join("\n"));
                self.fail(block, &format!("$ {command}\nprinted\n{printed}\nexpected\n{expected}"));
            }
        }
    }

    /// Runs commands whose output is not shown.
    fn shell(&mut self, block: &Block) {
        for line in block.text.replace("|\n", "| ").lines() {
            let command = without_comment(line);
            if let Some(target) = command.strip_prefix("make ") {
                let target = target.split_whitespace().next().unwrap_or_default();
                if !self.makefile.contains(&format!("\n{target}: ")) {
                    self.fail(block, &format!("make has no target {target}"));
                }
                continue;
            }
            let output = self.session.run(command);
            if output.code != Some(0) {
                self.fail(block, &format!("$ {command}\n{}{}", output.stdout, output.stderr));
            }
        }
    }

    fn json(&mut self, block: &Block, same_values: bool) {
        let shown = serde_json::from_str(&block.text);
        let printed = serde_json::from_str(&self.session.last_output);
        let (Ok(shown), Ok(printed)) = (shown, printed) else {
            let printed = self.session.last_output.clone();
            return self.fail(block, &format!("not JSON, or printed {printed}"));
        };
        let mut found = Vec::new();
        differences(&shown, &printed, same_values, "", &mut found);
        if !found.is_empty() {
            self.fail(block, &found.join("\n"));
        }
    }

    /// Checks that a Rust block is in the README of a crate that includes it in its documentation.
    fn doc_test(&mut self, block: &Block) {
        let library =
            self.name.strip_suffix("README.md").map(|folder| root().join(folder).join("src/lib.rs"));
        let is_included = library
            .and_then(|library| fs::read_to_string(library).ok())
            .is_some_and(|library| library.contains("include_str!(\"../README.md\")"));
        if !is_included {
            self.fail(block, "no test runs the block; see tests/book/block.rs for markers");
        }
    }
}

#[test]
fn every_block_of_the_book_is_run_or_says_why_not() {
    let (words, pages) = (policy_words(), pages());
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let run = |name: &str| {
        let session = Session::new(&root());
        let mut page =
            Page { name, words: &words, makefile: &makefile, session, failures: Vec::new(), not_run: 0 };
        for block in &blocks(&fs::read_to_string(root().join(name)).unwrap()) {
            page.run(block);
        }
        (page.failures, page.not_run)
    };
    // Pages do not depend on each other, and most of their time is that of other programs.
    let run = &run;
    let (mut failures, mut not_run) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let running: Vec<_> = pages.iter().map(|name| scope.spawn(move || run(name))).collect();
        for page in running {
            let (failed, skipped) = page.join().unwrap();
            failures.extend(failed);
            not_run += skipped;
        }
    });
    assert!(failures.is_empty(), "{} blocks:\n{}", failures.len(), failures.join("\n\n"));
    assert!(pages.len() > 30, "only {} pages were found", pages.len());
    assert_eq!(not_run, NOT_RUN_BLOCKS, "the number of blocks that no test runs has changed");
}

#[test]
fn the_readme_is_read_in_a_minute_or_two() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= MAX_README_WORDS, "README.md has {words} words; move some of it to the book");
}

#[test]
fn blocks_have_the_markers_above_them() {
    let page = "text\n<!-- run: a -->\n<!-- output -->\n```json\n{}\n```\n<!-- not run: b -->\nmore text\n```sh\nmake x\n```\n";
    let found = blocks(page);
    assert_eq!((found.len(), found[0].line, &*found[0].text), (2, 4, "{}\n"));
    assert!(found[0].has_marker("output") && found[0].marked("run").eq(["a"]));
    assert_eq!(found[1].marked("not run").count(), 0);
}
