//! Envoy, with its local rate limit filter.
//!
//! The filter has one token bucket for all requests, which is less work than three limits with keys and favors Envoy.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Contestant, Duty, Place, version};

/// The Envoy contestant.
pub struct Envoy {
    /// The program; `setup/envoy` installs one.
    pub program: PathBuf,
}

impl Contestant for Envoy {
    fn name(&self) -> &'static str {
        "envoy"
    }

    fn version(&self) -> io::Result<String> {
        envoy_version(&self.program)
    }

    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String) {
        ("envoy.json", format!("{:#}\n", bootstrap(place, limit(duty))))
    }

    fn command(&self, config: &Path, _: &Place) -> Command {
        command(&self.program, config, 1)
    }
}

/// Returns the version that Envoy prints.
pub fn envoy_version(program: &Path) -> io::Result<String> {
    // "PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL"
    let said = version(program, "--version")?;
    Ok(said.split_once("version: ").map_or(said.clone(), |(_, version)| version.to_owned()))
}

/// Returns the command that starts Envoy with this many workers.
pub fn command(program: &Path, config: &Path, workers: usize) -> Command {
    let mut command = Command::new(program);
    command.arg("--config-path").arg(config);
    command.arg("--concurrency").arg(workers.to_string());
    command.args(["--disable-hot-restart", "--log-level", "error"]);
    command
}

/// Returns a configuration that forwards every request, behind a filter if one is given.
pub fn bootstrap(place: &Place, filter: Option<Value>) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": kind("filters.http.router.v3.Router")},
    });
    let filters: Vec<Value> = filter.into_iter().chain([router]).collect();
    let manager = json!({
        "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "bench",
        // A random id per request takes time, and nginx does not create one.
        "generate_request_id": false,
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "behind"}}],
        }]},
    });
    json!({"static_resources": {
        "listeners": [{
            "name": "front",
            "address": socket(place.listen),
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }]}],
        }],
        "clusters": [{
            "name": "behind",
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": "behind",
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(place.upstream)}}]}],
            },
        }],
    }})
}

/// Returns the filter, unless limiting is off. It responds with 429 itself.
fn limit(duty: Duty) -> Option<Value> {
    let bucket = match duty {
        Duty::Off | Duty::ShedNode | Duty::ShedAdaptive => return None,
        Duty::Admit => {
            json!({"max_tokens": 10_000_000, "tokens_per_fill": 10_000_000, "fill_interval": "1s"})
        }
        Duty::Refuse => json!({"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "86400s"}),
    };
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    Some(json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": kind("filters.http.local_ratelimit.v3.LocalRateLimit"),
            "stat_prefix": "limit",
            "token_bucket": bucket,
            "filter_enabled": always,
            "filter_enforced": always,
        },
    }))
}

/// Returns the type of an extension.
pub fn kind(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

/// Returns an address.
pub fn socket(address: std::net::SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}
