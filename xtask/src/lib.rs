//! Chores of the repository, as functions that a test and a command share.
//!
//! - [`arrows`]: which crate may depend on which.
//! - [`sources`]: what every source file owes its reader.
//! - [`faults`]: the table of what was measured while Redis was broken.
//! - [`vocabulary`]: words that are retired.
//! - [`mod@reference`]: documents generated from the code, checked for staleness.

pub mod arrows;
pub mod faults;
pub mod reference;
pub mod sources;
pub mod vocabulary;

use std::path::PathBuf;

/// The top of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Everything that is out of place, one line each.
pub fn findings() -> std::io::Result<Vec<String>> {
    let root = root();
    let mut findings = arrows::findings(&root)?;
    findings.extend(sources::findings(&root)?);
    findings.extend(vocabulary::findings(&root)?);
    findings.extend(reference::findings(&root)?);
    Ok(findings)
}
