//! Documents that the code writes, so that they cannot lie about it.

use std::path::Path;
use std::{fs, io};

/// A document, and who writes it.
type Generated = (&'static str, fn() -> String);

const GENERATED: [Generated; 2] = [("docs/policy.schema.json", schema), ("docs/openapi.json", openapi)];

/// Writes them.
pub fn write(root: &Path) -> io::Result<()> {
    GENERATED.iter().try_for_each(|(path, text)| fs::write(root.join(path), text()))
}

/// Those that are stale.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let stale = |(path, text): &&Generated| fs::read_to_string(root.join(path)).unwrap_or_default() != text();
    let stale = GENERATED.iter().filter(stale);
    Ok(stale.map(|(path, _)| format!("{path} is stale: run `make generate`")).collect())
}

/// The policy file's JSON Schema, for editors.
fn schema() -> String {
    format!("{:#}\n", tollgate_policy::schema())
}

/// The decision API, for whoever writes a client.
fn openapi() -> String {
    format!("{:#}\n", tollgate_server::openapi())
}
