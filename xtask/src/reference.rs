//! Documents that the code writes, so that they cannot lie about it; and what reflection tells of
//! the gRPC services, from their `.proto` files.

use std::path::Path;
use std::{fs, io};

/// A document, and who writes it.
type Generated = (&'static str, fn(&Path) -> io::Result<Vec<u8>>);

const GENERATED: [Generated; 5] = [
    ("docs/policy.schema.json", |_| Ok(schema().into())),
    ("docs/tests.schema.json", |_| Ok(tests_schema().into())),
    ("docs/openapi.json", |_| Ok(openapi().into())),
    ("docs/lints.md", |_| Ok(tollgate_policy::Lint::document().into())),
    ("crates/tollgate-rls/proto/descriptors.bin", descriptors),
];

/// What is served over gRPC. What they import is found.
const SERVICES: [&str; 5] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
    "throttlecrab.proto",
];

/// Writes them.
pub fn write(root: &Path) -> io::Result<()> {
    GENERATED.iter().try_for_each(|(path, content)| fs::write(root.join(path), content(root)?))
}

/// Those that are stale.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (path, content) in GENERATED {
        if fs::read(root.join(path)).unwrap_or_default() != content(root)? {
            findings.push(format!("{path} is stale: run `make generate`"));
        }
    }
    Ok(findings)
}

/// The policy file's JSON Schema, for editors.
fn schema() -> String {
    format!("{:#}\n", tollgate_policy::schema())
}

/// The JSON Schema of a file of tests, for editors.
fn tests_schema() -> String {
    format!("{:#}\n", tollgate_policy_test::schema())
}

/// The decision API, for whoever writes a client.
fn openapi() -> String {
    format!("{:#}\n", tollgate_server::openapi())
}

/// The services as protobuf describes them, for reflection.
fn descriptors(root: &Path) -> io::Result<Vec<u8>> {
    let mut compiler =
        protox::Compiler::new([root.join("crates/tollgate-rls/proto")]).map_err(io::Error::other)?;
    compiler.include_imports(true).include_source_info(false);
    compiler.open_files(SERVICES).map_err(io::Error::other)?;
    Ok(compiler.encode_file_descriptor_set())
}
