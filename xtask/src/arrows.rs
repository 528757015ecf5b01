//! The permitted dependencies between crates.
//!
//! Dependencies have one direction, and a new one is a design decision: it is added here and to
//! ARCHITECTURE.md in the same commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Each crate with its permitted dependencies, as drawn in ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("tollgate-core", &[]),
    ("tollgate-overload", &[]),
    ("tollgate-document", &["tollgate-core"]),
    ("tollgate-policy", &["tollgate-core", "tollgate-document"]),
    ("tollgate-store", &["tollgate-core"]),
    ("tollgate-lease", &["tollgate-core", "tollgate-store"]),
    ("tollgate-postgres", &["tollgate-core", "tollgate-store"]),
    ("tollgate-peers", &["tollgate-core", "tollgate-store"]),
    ("tollgate-redis", &["tollgate-core", "tollgate-store"]),
    (
        "tollgate",
        &["tollgate-core", "tollgate-overload", "tollgate-policy", "tollgate-redis", "tollgate-store"],
    ),
    ("tollgate-client", &["tollgate"]),
    ("tollgate-telemetry", &["tollgate"]),
    ("tollgate-records", &["tollgate", "tollgate-core", "tollgate-telemetry"]),
    ("tollgate-http", &["tollgate"]),
    ("tollgate-net", &[]),
    ("tollgate-api", &[]),
    ("tollgate-book", &[]),
    ("tollgate-grpc", &[]),
    ("tollgate-rlqs", &["tollgate", "tollgate-api", "tollgate-grpc", "tollgate-telemetry"]),
    (
        "tollgate-gateway",
        &["tollgate", "tollgate-document", "tollgate-http", "tollgate-net", "tollgate-overload"],
    ),
    ("tollgate-load", &["tollgate", "tollgate-client", "tollgate-net"]),
    ("tollgate-outbound", &["tollgate", "tollgate-client", "tollgate-document", "tollgate-net"]),
    ("tollgate-envoy", &["tollgate", "tollgate-document"]),
    (
        "tollgate-rls",
        &[
            "tollgate",
            "tollgate-document",
            "tollgate-envoy",
            "tollgate-grpc",
            "tollgate-http",
            "tollgate-rlqs",
            "tollgate-telemetry",
        ],
    ),
    ("tollgate-xds", &["tollgate-document", "tollgate-envoy", "tollgate-grpc", "tollgate-net"]),
    ("tollgate-resp", &["tollgate", "tollgate-document", "tollgate-net", "tollgate-telemetry"]),
    ("tollgate-import", &["tollgate", "tollgate-document", "tollgate-envoy"]),
    (
        "tollgate-sim",
        &["tollgate", "tollgate-client", "tollgate-document", "tollgate-lease", "tollgate-telemetry"],
    ),
    ("tollgate-policy-test", &["tollgate", "tollgate-document", "tollgate-http"]),
    (
        "tollgate-server",
        &[
            "tollgate",
            "tollgate-api",
            "tollgate-document",
            "tollgate-http",
            "tollgate-records",
            "tollgate-sim",
            "tollgate-telemetry",
        ],
    ),
    (
        "tollgate-daemon",
        &[
            "tollgate",
            "tollgate-document",
            "tollgate-envoy",
            "tollgate-gateway",
            "tollgate-http",
            "tollgate-lease",
            "tollgate-net",
            "tollgate-outbound",
            "tollgate-postgres",
            "tollgate-peers",
            "tollgate-records",
            "tollgate-redis",
            "tollgate-resp",
            "tollgate-rls",
            "tollgate-server",
            "tollgate-telemetry",
            "tollgate-xds",
        ],
    ),
    (
        "tollgate-cli",
        &[
            "tollgate",
            "tollgate-api",
            "tollgate-book",
            "tollgate-daemon",
            "tollgate-document",
            "tollgate-envoy",
            "tollgate-import",
            "tollgate-load",
            "tollgate-net",
            "tollgate-policy-test",
            "tollgate-sim",
        ],
    ),
    ("tollgate-testkit", &[]),
];

/// Libraries that a crate must not depend on, with the reason.
const ABSENT: &[(&str, &[&str], &str)] = &[
    ("tollgate-core", &["tokio", "quanta", "rand", "tracing", "log"], "it contains only arithmetic"),
    ("tollgate-overload", &["tokio", "quanta", "rand", "tracing"], "it contains only arithmetic"),
    (
        "tollgate-document",
        &["tokio", "quanta", "rand", "http", "serde_json", "schemars"],
        "it knows no format",
    ),
    ("tollgate-policy", &["tokio", "quanta", "rand", "http", "hyper"], "it parses text"),
    ("tollgate-store", &["tokio", "redis", "http"], "a store that needs a socket is a separate crate"),
    ("tollgate", &["http", "hyper", "tonic", "redis"], "wire protocols belong to surfaces"),
    (
        "tollgate-telemetry",
        &["http", "hyper", "tokio", "serde"],
        "it only receives events and answers queries",
    ),
    ("tollgate-envoy", &["tokio", "http", "prost", "tonic"], "it reads text and finds limits"),
    ("tollgate-import", &["tokio", "http"], "it converts text to text"),
    ("tollgate-sim", &["tokio", "hyper", "quanta"], "time comes from a log or a traffic shape"),
    ("tollgate-policy-test", &["tokio", "quanta"], "time comes from the test file"),
    ("tollgate-rlqs", &["hyper", "tokio", "quanta"], "it receives messages and returns messages"),
    ("tollgate-rls", &["hyper", "tokio"], "it receives requests and returns responses"),
    ("tollgate-client", &["hyper", "tokio", "quanta"], "it paces the client of its caller, on any runtime"),
    ("tollgate-http", &["hyper", "axum"], "sockets belong to the server"),
    ("tollgate-server", &["hyper", "tokio"], "it receives requests and returns responses"),
    ("tollgate-daemon", &["clap", "ratatui"], "arguments and output belong to the binary"),
];

/// Returns dependencies that are not permitted, and crates that are not listed.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    let chart = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    for entry in fs::read_dir(root.join("crates"))? {
        let path = entry?.path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let used = dependencies(&manifest)?;
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{name}: add this crate to xtask/src/arrows.rs and ARCHITECTURE.md"));
            continue;
        };
        if !chart.contains(&format!("`{name}`")) {
            findings.push(format!("ARCHITECTURE.md does not mention `{name}`"));
        }
        for used in &used {
            if used.starts_with("tollgate") && !allowed.contains(&used.as_str()) {
                findings.push(format!(
                    "{name} → {used}: this dependency is not permitted; see xtask/src/arrows.rs"
                ));
            }
            let banned =
                ABSENT.iter().find(|(known, absent, _)| *known == name && absent.contains(&used.as_str()));
            if let Some((_, _, why)) = banned {
                findings.push(format!("{name} must not depend on {used}: {why}"));
            }
        }
    }
    Ok(findings)
}

/// Returns the dependencies of a crate, without those of its tests.
fn dependencies(manifest: &str) -> io::Result<Vec<String>> {
    let manifest: BTreeMap<String, toml::Value> = toml::from_str(manifest).map_err(io::Error::other)?;
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    Ok(table.map(|table| table.keys().cloned().collect()).unwrap_or_default())
}
