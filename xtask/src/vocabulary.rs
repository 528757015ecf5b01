//! Retired words: names and prose that the glossary of CONTRIBUTING.md has replaced.
//!
//! The list is `xtask/retired.tsv`: a kind, the retired word, and the word to use. Identifiers are
//! checked in the code of Rust sources, prose in their comments and in Markdown. String literals
//! are not checked: policy words, JSON members and lint codes are contracts.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The list, one word per line.
const RETIRED: &str = include_str!("../retired.tsv");

/// Files that may use retired words: the history, and pages that only redirect.
const EXEMPT: [&str; 2] = ["CHANGELOG.md", "docs/traps.md"];

/// How a retired word is matched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The whole identifier.
    Identifier,
    /// The start of an identifier, followed by nothing or by an upper-case letter or digit.
    Prefix,
    /// The end of the name of a method or associated function that is called.
    CallSuffix,
    /// A word of a comment or of Markdown outside code, in any case.
    Prose,
}

struct Retired {
    kind: Kind,
    word: &'static str,
    instead: &'static str,
}

/// Part of a Rust source: code, or the text of a comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Uses of retired words, one line each.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let retired = retired();
    let mut findings = Vec::new();
    let mut files = Vec::new();
    for folder in ["crates", "bench", "xtask", "docs"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.extend(["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(|name| root.join(name)));
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        if EXEMPT.contains(&shown.as_str()) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let is_rust = file.extension().is_some_and(|it| it == "rs");
        let parts = if is_rust { rust_parts(&text) } else { vec![(Part::Comment, 0, text.len())] };
        for (part, start, end) in parts {
            check(&text[start..end], part, &retired, |at, found| {
                let line = text[..start + at].matches('\n').count() + 1;
                findings.push(format!("{shown}:{line}: `{}` is retired: use {}", found.word, found.instead));
            });
        }
    }
    Ok(findings)
}

fn retired() -> Vec<Retired> {
    let lines = RETIRED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut cells = line.split('\t');
            let kind = match cells.next()? {
                "identifier" => Kind::Identifier,
                "prefix" => Kind::Prefix,
                "call-suffix" => Kind::CallSuffix,
                "prose" => Kind::Prose,
                _ => return None,
            };
            Some(Retired { kind, word: cells.next()?, instead: cells.next()? })
        })
        .collect()
}

/// Calls `found` with each retired word of a part, and its offset.
fn check<'r>(text: &str, part: Part, retired: &'r [Retired], mut found: impl FnMut(usize, &'r Retired)) {
    let mut in_span = false;
    let mut rest = 0;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    while rest < bytes.len() {
        if !is_word(bytes[rest]) {
            in_span ^= bytes[rest] == b'`';
            rest += 1;
            continue;
        }
        let start = rest;
        while rest < bytes.len() && is_word(bytes[rest]) {
            rest += 1;
        }
        let (word, before, after) = (&text[start..rest], &bytes[..start], &bytes[rest..]);
        let joined = |byte: Option<&u8>| matches!(byte, Some(b'-' | b'/'));
        for it in retired {
            let matches = match (it.kind, part) {
                (Kind::Identifier, Part::Code) => word == it.word,
                (Kind::Prefix, Part::Code) => word.strip_prefix(it.word).is_some_and(|rest| {
                    rest.is_empty()
                        || rest.starts_with(|next: char| next.is_ascii_uppercase() || next.is_ascii_digit())
                }),
                (Kind::CallSuffix, Part::Code) => {
                    word.ends_with(it.word)
                        && after.first() == Some(&b'(')
                        && (before.ends_with(b".") || before.ends_with(b"::"))
                }
                (Kind::Prose, Part::Comment) => {
                    !in_span
                        && word.eq_ignore_ascii_case(it.word)
                        && !joined(before.last())
                        && !joined(after.first())
                }
                _ => false,
            };
            if matches {
                found(start, it);
            }
        }
    }
}

/// Returns the parts of a source in order, with their start and end offsets.
fn rust_parts(text: &str) -> Vec<(Part, usize, usize)> {
    let bytes = text.as_bytes();
    let (mut parts, mut at, mut code) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let literal = raw_string(rest).or_else(|| quoted(rest));
        let (part, length) = if rest.starts_with("//") {
            (Part::Comment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Part::Comment, rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if let Some(length) = literal {
            (Part::Literal, length)
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        parts.push((Part::Code, code, at));
        parts.push((part, at, at + length));
        at += length;
        code = at;
    }
    parts.push((Part::Code, code, bytes.len()));
    parts
}

/// Returns the length of `r"…"` or `r#"…"#` at the start of a text.
fn raw_string(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('r')?;
    let hashes = inner.bytes().take_while(|&byte| byte == b'#').count();
    let body = inner[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(1 + hashes + 1 + body.find(&close)? + close.len())
}

/// Returns the length of `"…"`, `'c'` or `'\…'` at the start of a text. A lifetime is neither.
fn quoted(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    let mut escaped = false;
    let mut chars = text.char_indices().skip(1);
    if quote == '\'' {
        let (_, first) = chars.next()?;
        if first != '\\' {
            return chars.next().filter(|(_, next)| *next == '\'').map(|(at, _)| at + 1);
        }
        chars.next()?;
        return chars.find(|(_, next)| *next == '\'').map(|(at, _)| at + 1);
    }
    for (at, char) in chars {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target" && name != "node_modules") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|it| it == "rs" || it == "md") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, &'static str)> {
        let list = [
            Retired { kind: Kind::Identifier, word: "Demand", instead: "Amount" },
            Retired { kind: Kind::Prefix, word: "Told", instead: "a reply" },
            Retired { kind: Kind::CallSuffix, word: "_at_once", instead: "try_" },
            Retired { kind: Kind::Prose, word: "trap", instead: "lint" },
        ];
        let list: &'static [Retired] = Vec::leak(Vec::from(list));
        let mut found = Vec::new();
        for (part, start, end) in rust_parts(text) {
            check(&text[start..end], part, list, |at, it| found.push((start + at, it.word)));
        }
        found
    }

    #[test]
    fn identifiers_are_found_in_code_and_words_in_comments() {
        assert_eq!(words("let a = Demand::of(b);"), [(8, "Demand")]);
        assert_eq!(words("struct ToldLimit; fn toldLimit() {}"), [(7, "Told")]);
        assert_eq!(words("store.decide_at_once(); fn it_ends_at_once() {}"), [(6, "_at_once")]);
        assert_eq!(words("// A trap."), [(5, "trap")]);
        assert_eq!(words("// A Trap: `trap`, trap-door\nlet trap = 1;"), [(5, "trap")]);
    }

    #[test]
    fn strings_and_longer_identifiers_are_left_alone() {
        assert_eq!(words(r##"let a = "Demand \" Demand"; let b = r#"Demand "Told" "#;"##), []);
        assert_eq!(words("let (a, b): (&'a str, char) = (OnDemand, '\\''); // Demand"), []);
        assert_eq!(words("Tolduse; 'D'; let c = '\"'; Demand"), [(27, "Demand")]);
    }

    #[test]
    fn every_line_of_the_list_is_read() {
        let lines = RETIRED.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(retired().len(), lines);
    }
}
