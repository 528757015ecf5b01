//! Which crate may depend on which. Arrows point one way, and a new one is a
//! decision: it goes here and into ARCHITECTURE.md in the same commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Each crate and what it may use, as ARCHITECTURE.md draws it.
const ARROWS: &[(&str, &[&str])] = &[
    ("tollgate-core", &[]),
    ("tollgate-policy", &["tollgate-core"]),
    ("tollgate-store", &["tollgate-core"]),
    ("tollgate-redis", &["tollgate-core", "tollgate-store"]),
    ("tollgate", &["tollgate-core", "tollgate-policy", "tollgate-store"]),
    ("tollgate-telemetry", &["tollgate"]),
    ("tollgate-http", &["tollgate"]),
    ("tollgate-net", &[]),
    ("tollgate-gateway", &["tollgate", "tollgate-http", "tollgate-net"]),
    ("tollgate-envoy", &["tollgate"]),
    ("tollgate-rls", &["tollgate", "tollgate-envoy", "tollgate-http"]),
    ("tollgate-resp", &["tollgate", "tollgate-http", "tollgate-net"]),
    ("tollgate-import", &["tollgate", "tollgate-envoy"]),
    ("tollgate-sim", &["tollgate", "tollgate-telemetry"]),
    ("tollgate-policy-test", &["tollgate", "tollgate-http"]),
    ("tollgate-server", &["tollgate", "tollgate-http", "tollgate-sim", "tollgate-telemetry"]),
    (
        "tollgate-cli",
        &[
            "tollgate",
            "tollgate-envoy",
            "tollgate-gateway",
            "tollgate-http",
            "tollgate-import",
            "tollgate-net",
            "tollgate-redis",
            "tollgate-resp",
            "tollgate-rls",
            "tollgate-server",
            "tollgate-sim",
            "tollgate-policy-test",
            "tollgate-telemetry",
        ],
    ),
    ("tollgate-testkit", &[]),
];

/// Libraries that must not be found in a crate, and why.
const ABSENT: &[(&str, &[&str], &str)] = &[
    ("tollgate-core", &["tokio", "quanta", "rand", "tracing", "log"], "it is arithmetic"),
    ("tollgate-policy", &["tokio", "quanta", "rand", "http", "hyper"], "it parses text"),
    ("tollgate-store", &["tokio", "redis", "http"], "what needs a socket is a store of its own"),
    ("tollgate", &["http", "hyper", "tonic", "redis"], "wire protocols are surfaces"),
    ("tollgate-telemetry", &["http", "hyper", "tokio", "serde"], "it is told, and answers who asks"),
    ("tollgate-envoy", &["tokio", "http", "prost", "tonic"], "it reads text and finds limits"),
    ("tollgate-import", &["tokio", "http"], "it turns text into text"),
    ("tollgate-sim", &["tokio", "http", "quanta"], "time is what a log or a shape says it is"),
    ("tollgate-policy-test", &["tokio", "quanta"], "time is what a test says it is"),
    ("tollgate-rls", &["hyper", "tokio"], "it is handed requests and hands back answers"),
    ("tollgate-http", &["hyper", "axum"], "sockets belong to whoever serves"),
    ("tollgate-server", &["hyper", "tokio"], "it is handed requests and hands back answers"),
];

/// Arrows that are not drawn, and crates that nobody drew.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut findings = Vec::new();
    let chart = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    for entry in fs::read_dir(root.join("crates"))? {
        let path = entry?.path();
        let Ok(manifest) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let used = dependencies(&manifest)?;
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{name}: draw this crate in xtask/src/arrows.rs and ARCHITECTURE.md"));
            continue;
        };
        if !chart.contains(&format!("`{name}`")) {
            findings.push(format!("ARCHITECTURE.md does not mention `{name}`"));
        }
        for used in &used {
            if used.starts_with("tollgate") && !allowed.contains(&used.as_str()) {
                findings.push(format!("{name} → {used}: this arrow is not drawn"));
            }
            let banned =
                ABSENT.iter().find(|(known, absent, _)| *known == name && absent.contains(&used.as_str()));
            if let Some((_, _, why)) = banned {
                findings.push(format!("{name} must do without {used}: {why}"));
            }
        }
    }
    Ok(findings)
}

/// What a crate depends on outside of its tests.
fn dependencies(manifest: &str) -> io::Result<Vec<String>> {
    let manifest: BTreeMap<String, toml::Value> = toml::from_str(manifest).map_err(io::Error::other)?;
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    Ok(table.map(|table| table.keys().cloned().collect()).unwrap_or_default())
}
