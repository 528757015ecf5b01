//! Rules for crates that can be published: a description, a readme, and the texts of both licenses.

use std::path::Path;
use std::{fs, io};

use toml::Table;

/// The texts that a package contains.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Returns the parts that published crates lack.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut folders: Vec<_> = fs::read_dir(root.join("crates"))?
        .map(|entry| entry.map(|it| it.path()))
        .collect::<io::Result<_>>()?;
    folders.sort();
    let mut findings = Vec::new();
    for folder in folders.into_iter().filter(|it| it.join("Cargo.toml").is_file()) {
        let name = folder.strip_prefix(root).unwrap_or(&folder).display().to_string();
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
        let manifest: Table = toml::from_str(&manifest).map_err(io::Error::other)?;
        let found = missing(&manifest, |file| folder.join(file).is_file());
        findings.extend(found.into_iter().map(|it| format!("{name}: {it}")));
    }
    Ok(findings)
}

/// Returns what the package of a manifest lacks.
fn missing(manifest: &Table, has_file: impl Fn(&str) -> bool) -> Vec<String> {
    let package = manifest.get("package").and_then(toml::Value::as_table);
    let field = |name: &str| package.and_then(|it| it.get(name));
    let is_published = field("publish").and_then(toml::Value::as_bool) != Some(false);
    let mut missing = Vec::new();
    if is_published {
        let text = |name: &str| field(name).and_then(toml::Value::as_str);
        if text("description").is_none() {
            missing.push("no description in Cargo.toml".to_owned());
        }
        let files = LICENSES.into_iter().chain([text("readme").unwrap_or("README.md")]);
        missing
            .extend(files.filter(|it| !has_file(it)).map(|it| format!("no {it}, which its package needs")));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str, files: &[&str]) -> Vec<String> {
        missing(&toml::from_str(manifest).unwrap(), |file| files.contains(&file))
    }

    #[test]
    fn a_published_crate_needs_a_description_a_readme_and_licenses() {
        let whole = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
        assert!(found("[package]\ndescription = \"a\"", &whole).is_empty());
        assert!(found("[package]\npublish = false", &[]).is_empty());
        assert_eq!(found("[package]", &whole), ["no description in Cargo.toml"]);
        let other = found("[package]\ndescription = \"a\"\nreadme = \"API.md\"", &whole);
        assert_eq!(other, ["no API.md, which its package needs"]);
        assert_eq!(found("[package]\ndescription = \"a\"", &["README.md"]).len(), 2);
    }
}
