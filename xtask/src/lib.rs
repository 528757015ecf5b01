//! Repository checks and generators, as functions that tests and commands share.
//!
//! - [`arrows`]: the permitted dependencies between crates.
//! - [`sources`]: rules for every source file.
//! - [`test_modules`]: every file of integration tests is compiled.
//! - [`faults`]: the tables of the fault tests.
//! - [`links`]: links between documents.
//! - [`packages`]: what a published crate contains.
//! - [`vocabulary`]: retired words.
//! - [`mod@reference`]: documents generated from the code, checked for staleness.

pub mod arrows;
pub mod faults;
pub mod links;
pub mod packages;
pub mod reference;
pub mod sources;
pub mod test_modules;
pub mod vocabulary;

use std::path::PathBuf;

/// Returns the root folder of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Returns all violations, one line each.
pub fn findings() -> std::io::Result<Vec<String>> {
    let root = root();
    let mut findings = arrows::findings(&root)?;
    findings.extend(sources::findings(&root)?);
    findings.extend(test_modules::findings(&root)?);
    findings.extend(vocabulary::findings(&root)?);
    findings.extend(reference::findings(&root)?);
    findings.extend(links::findings(&root)?);
    findings.extend(packages::findings(&root)?);
    Ok(findings)
}
