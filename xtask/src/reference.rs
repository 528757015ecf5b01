//! Documents that are generated from the code, and the gRPC descriptors for reflection, from the
//! `.proto` files.

use std::path::Path;
use std::{fs, io};

/// The path of a document, and the function that generates it.
type Generated = (&'static str, fn(&Path) -> io::Result<Vec<u8>>);

const GENERATED: [Generated; 5] = [
    ("docs/policy.schema.json", |_| Ok(schema().into())),
    ("docs/tests.schema.json", |_| Ok(tests_schema().into())),
    ("docs/openapi.json", |_| Ok(openapi().into())),
    ("docs/lints.md", |_| Ok(tollgate_policy::Lint::document().into())),
    ("crates/tollgate-rls/proto/descriptors.bin", descriptors),
];

/// The services that are served over gRPC. Their imports are resolved.
const SERVICES: [&str; 8] = [
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "envoy/service/ratelimit/v3/rls.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
    "kuadrant/service/ratelimit/v1/ratelimit.proto",
    "throttlecrab.proto",
];

/// Writes all generated documents.
pub fn write(root: &Path) -> io::Result<()> {
    GENERATED.iter().try_for_each(|(path, content)| fs::write(root.join(path), content(root)?))
}

/// Returns the documents that are stale.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (path, content) in GENERATED {
        if fs::read(root.join(path)).unwrap_or_default() != content(root)? {
            findings.push(format!("{path} is stale: run `make generate`"));
        }
    }
    Ok(findings)
}

/// Returns the JSON Schema of the policy file, for editors.
fn schema() -> String {
    format!("{:#}\n", tollgate_policy::schema())
}

/// Returns the JSON Schema of a test file, for editors.
fn tests_schema() -> String {
    format!("{:#}\n", tollgate_policy_test::schema())
}

/// Returns the OpenAPI description of the decision API, for authors of clients.
fn openapi() -> String {
    format!("{:#}\n", tollgate_server::openapi())
}

/// Returns the descriptors of the services, for reflection.
fn descriptors(root: &Path) -> io::Result<Vec<u8>> {
    let mut compiler =
        protox::Compiler::new([root.join("crates/tollgate-rls/proto")]).map_err(io::Error::other)?;
    compiler.include_imports(true).include_source_info(false);
    compiler.open_files(SERVICES).map_err(io::Error::other)?;
    Ok(compiler.encode_file_descriptor_set())
}
