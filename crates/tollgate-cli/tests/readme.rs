//! The commands in README.md and in the book print the output that the documents show.
//!
//! A `console` block is run line by line in a shell. A YAML block whose first line is a comment with a file
//! name is that file. Servers listen on free ports, which replace those of the document. Numbers that
//! depend on the time, and ids, are masked; `…` stands for any text.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_testkit::{Program, ProgramOutput, Scratch};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
/// The maximum number of words of README.md.
const MAX_README_WORDS: usize = 900;
/// The documents whose commands are run.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/getting-started.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the kind and the text of each code block.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            if !is_inside {
                blocks.push((kind.trim().to_owned(), String::new()));
            }
            is_inside = !is_inside;
        } else if let (true, Some((_, block))) = (is_inside, blocks.last_mut()) {
            block.push_str(line);
            block.push('\n');
        }
    }
    blocks
}

/// A directory with the files of a document, and the servers that it has started.
struct Session {
    files: Scratch,
    servers: Vec<Program>,
    gateway: SocketAddr,
    api: SocketAddr,
}

impl Session {
    fn new() -> Self {
        let files = Scratch::new();
        fs::create_dir(files.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(BINARY, files.path().join("bin/tollgate")).unwrap();
        fs::copy(root().join("docs/samples/access.log"), files.path().join("access.log")).unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        Self { files, servers: Vec::new(), gateway: nowhere, api: nowhere }
    }

    fn shell(&self, line: &str) -> Command {
        let line = line
            .replace("localhost:8080", &self.gateway.to_string())
            .replace("localhost:7070", &self.api.to_string());
        let mut command = Command::new("sh");
        let path = format!("{}/bin:{}", self.files.path().display(), "/usr/sbin:/usr/bin:/sbin:/bin");
        command.current_dir(self.files.path()).env_clear().env("PATH", path);
        command.env("TOLLGATE_API", format!("http://{}", self.api)).args(["-c", &line]).stdin(Stdio::null());
        command
    }

    /// Runs a command, or starts it if it ends with `&`.
    fn run(&mut self, line: &str) -> String {
        let Some(server) = line.strip_suffix('&') else {
            let output = ProgramOutput::of(self.shell(line));
            return output.stdout + &output.stderr;
        };
        let ready = self.files.path().join("ready.json");
        let _ = fs::remove_file(&ready);
        let free = "--listen-gateway 127.0.0.1:0 --listen-api 127.0.0.1:0 --listen-rls off --listen-resp off";
        let mut command = self.shell(&format!("exec {server} {free} --ready-file ready.json"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.servers.clear();
        let mut program = Program::start(command);
        let addresses = || serde_json::from_str::<Value>(&fs::read_to_string(&ready).ok()?).ok();
        program.wait_until("ready file", || addresses().is_some());
        let addresses = addresses().unwrap();
        self.gateway = addresses["gateway"].as_str().unwrap().parse().unwrap();
        self.api = addresses["api"].as_str().unwrap().parse().unwrap();
        self.servers.push(program);
        String::new()
    }

    /// Runs a block, and compares its output.
    fn check(&mut self, name: &str, block: &str) {
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("{name}: not a command: {line}"));
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected.push(masked(line));
            }
            // A comment after the command explains it to the reader.
            let printed = self.run(command.split("   #").next().unwrap_or(command).trim_end());
            let printed: Vec<_> = printed.lines().map(masked).collect();
            assert!(
                is_like(&printed, &expected),
                "{name}: $ {command}\nprinted\n{}\nexpected\n{}",
                printed.join("\n"),
                expected.join("\n")
            );
        }
    }
}

/// Replaces ids, and the numbers that depend on the time.
fn masked(line: &str) -> String {
    let mut out = String::new();
    for word in line.trim_end().split_inclusive([' ', ';', '"', ':', ',']) {
        let bare = word.trim_end_matches([' ', ';', '"', ':', ',']);
        let is_id = bare.len() == 16 && bare.bytes().all(|it| it.is_ascii_hexdigit());
        if is_id {
            out.push_str("ID");
            out.push_str(&word[bare.len()..]);
        } else {
            out.push_str(word);
        }
    }
    let depends_on_time = ["retry-after", "t=", " min", " s.", " s,", "left", "reset", "took"];
    if depends_on_time.iter().any(|it| out.contains(it)) {
        out = out.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
        while out.contains("00") {
            out = out.replace("00", "0");
        }
        out = out.replace("0.0", "0");
    }
    out
}

/// Whether lines are as expected; a line `…` stands for any number of lines.
fn is_like(printed: &[String], expected: &[String]) -> bool {
    match (printed, expected) {
        (_, [any]) if any == "…" => true,
        ([], []) => true,
        (_, [any, rest @ ..]) if any == "…" => (0..=printed.len()).any(|at| is_like(&printed[at..], rest)),
        ([first, printed @ ..], [wanted, expected @ ..]) => {
            has_parts(first, wanted) && is_like(printed, expected)
        }
        _ => false,
    }
}

/// Whether a line has the parts between `…`, in order.
fn has_parts(line: &str, wanted: &str) -> bool {
    let parts: Vec<_> = wanted.split('…').collect();
    if let [only] = parts.as_slice() {
        return line == *only;
    }
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    let mut rest = line;
    line.starts_with(first)
        && line.ends_with(last)
        && parts.iter().all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
}

#[test]
fn every_command_prints_what_the_document_shows() {
    let mut commands = 0;
    for name in DOCUMENTS {
        let mut session = Session::new();
        for (kind, block) in blocks(&fs::read_to_string(root().join(name)).unwrap()) {
            match kind.as_str() {
                "yaml" => {
                    let first = block.lines().next().unwrap_or_default();
                    let file = first
                        .strip_prefix("# ")
                        .filter(|it| it.strip_suffix(".yaml").is_some_and(|it| !it.contains(' ')));
                    if let Some(file) = file {
                        session.files.write(file, &block);
                    }
                }
                "console" => {
                    commands += block.lines().filter(|line| line.starts_with("$ ")).count();
                    session.check(name, &block);
                }
                _ => {}
            }
        }
    }
    assert!(commands >= 10, "only {commands} commands were found");
}

#[test]
fn every_make_target_in_the_documents_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut seen = 0;
    for name in DOCUMENTS {
        for (kind, block) in blocks(&fs::read_to_string(root().join(name)).unwrap()) {
            for line in block.lines().filter(|_| kind == "sh") {
                let Some(target) = line.strip_prefix("make ").and_then(|it| it.split_whitespace().next())
                else {
                    continue;
                };
                seen += 1;
                assert!(makefile.contains(&format!("\n{target}: ")), "{name}: make {target}");
            }
        }
    }
    assert!(seen >= 4, "only {seen} targets were found");
}

#[test]
fn the_readme_is_read_in_a_minute_or_two() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= MAX_README_WORDS, "README.md has {words} words; move some of it to the book");
}

#[test]
fn masks_hide_only_ids_and_times() {
    assert_eq!(masked("retry-after: 718"), masked("retry-after: 7"));
    assert_eq!(masked("tollgate-decision: e67e6fef1cc863b3"), masked("tollgate-decision: 0000000000000001"));
    assert_ne!(masked("HTTP/1.1 429 Too Many Requests"), masked("HTTP/1.1 503 Too Many Requests"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(is_like(&lines("a\nb\nc"), &lines("a\n…\nc")));
    assert!(!is_like(&lines("a\nb"), &lines("a\n…\nc")));
    assert!(has_parts("{\"a\":1,\"b\":2}", "{…\"b\":2}") && !has_parts("ab", "b…"));
}
