//! Rules for every source file: a header, a bounded length, and no open tasks.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The longest file, in lines. A longer file gives the reason in its header.
const MAX_LINES: usize = 600;

/// Returns the files that break a rule.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for folder in ["crates", "bench", "xtask"] {
        collect(&root.join(folder), &mut files)?;
    }
    let mut findings = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display();
        let header: Vec<_> =
            text.lines().take_while(|line| line.starts_with("//!") || line.is_empty()).collect();
        // A crate may include its README instead.
        if header.is_empty() && !text.starts_with("#![doc = include_str!") {
            findings.push(format!("{shown}: begin with a `//!` header that describes the module"));
        }
        if text.lines().count() > MAX_LINES && !header.iter().any(|line| line.contains("One file because")) {
            findings.push(format!(
                "{shown}: over {MAX_LINES} lines; split it, or say `One file because …` in the header"
            ));
        }
        // Split in two so that this file does not match itself.
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if let Some(line) = text.lines().position(|line| line.contains(word)) {
                findings.push(format!("{shown}:{}: {word}", line + 1));
            }
        }
    }
    Ok(findings)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
