//! Every file of integration tests is compiled.
//!
//! Crates with `autotests = false` list their tests in `tests/main.rs` and in `[[test]]` sections of their
//! manifest, so that few binaries are linked. A file that neither names would never run.

use std::path::Path;
use std::{fs, io};

/// Returns the test files that no binary contains.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        if !manifest.lines().any(|line| line == "autotests = false") {
            continue;
        }
        let modules = fs::read_to_string(folder.join("tests/main.rs")).unwrap_or_default();
        for entry in fs::read_dir(folder.join("tests"))? {
            let file = entry?.path();
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            let is_source = file.extension().is_some_and(|it| it == "rs");
            let is_binary = file.join("main.rs").is_file();
            if is_source || is_binary {
                let path =
                    if is_binary { format!("tests/{stem}/main.rs") } else { format!("tests/{stem}.rs") };
                if !is_named(&stem, &path, &modules, &manifest) {
                    let shown = folder.strip_prefix(root).unwrap_or(&folder).display();
                    findings.push(format!(
                        "{shown}/{path}: never runs; write `mod {stem};` in tests/main.rs, or a `[[test]]` section"
                    ));
                }
            }
        }
    }
    Ok(findings)
}

fn is_named(stem: &str, path: &str, modules: &str, manifest: &str) -> bool {
    modules.lines().any(|line| line == format!("mod {stem};"))
        || manifest.lines().any(|line| line == format!("path = \"{path}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_runs_as_a_module_or_as_a_binary() {
        let (modules, manifest) =
            ("mod redis;\n", "[[test]]\nname = \"faults\"\npath = \"tests/faults/main.rs\"\n");
        assert!(is_named("redis", "tests/redis.rs", modules, manifest));
        assert!(is_named("faults", "tests/faults/main.rs", modules, manifest));
        assert!(!is_named("replay", "tests/replay.rs", modules, manifest));
    }
}
