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
        // "PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL"
        let said = version(&self.program, "--version")?;
        Ok(said.split_once("version: ").map_or(said.clone(), |(_, version)| version.to_owned()))
    }

    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String) {
        ("envoy.json", format!("{:#}\n", bootstrap(duty, place)))
    }

    fn command(&self, config: &Path, _: &Place) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--config-path").arg(config);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]);
        command
    }
}

fn bootstrap(duty: Duty, place: &Place) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": kind("filters.http.router.v3.Router")},
    });
    let filters: Vec<Value> = limit(duty).into_iter().chain([router]).collect();
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
        Duty::Off => return None,
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

fn kind(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn socket(address: std::net::SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}
