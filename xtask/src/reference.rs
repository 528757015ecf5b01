//! Documents that the code writes, so that they cannot lie about it.

use std::path::Path;
use std::{fs, io};

const SCHEMA: &str = "docs/policy.schema.json";

/// Writes them.
pub fn write(root: &Path) -> io::Result<()> {
    fs::write(root.join(SCHEMA), schema())
}

/// Those that are stale.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let written = fs::read_to_string(root.join(SCHEMA)).unwrap_or_default();
    let stale = written != schema();
    Ok(stale.then(|| format!("{SCHEMA} is stale: run `make generate`")).into_iter().collect())
}

/// The policy file's JSON Schema, for editors.
fn schema() -> String {
    format!("{:#}\n", tollgate_policy::schema())
}
