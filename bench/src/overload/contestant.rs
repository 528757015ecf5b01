//! The proxies before the upstream: Tollgate without limits, Envoy with its two filters, and Tollgate with an adaptive limit.
//!
//! All of them give up on the upstream after [`CALLER_TIMEOUT`](super::CALLER_TIMEOUT), as their callers do, and have as many workers as the machine has
//! cores.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io, thread};

use serde_json::{Value, json};

use super::learned::LearnedLimit;
use crate::gateway::contestant::{Place, envoy, version};
use crate::gateway::probe;
use crate::server::{Server, free_address};

/// The programs of a run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Tollgate.
    pub tollgate: PathBuf,
    /// Envoy; `setup/envoy` installs one.
    pub envoy: PathBuf,
}

/// A proxy with its protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// Tollgate's gateway without limits.
    Nothing,
    /// Envoy's `adaptive_concurrency` filter.
    EnvoyAdaptiveConcurrency,
    /// Envoy's `admission_control` filter.
    EnvoyAdmissionControl,
    /// Tollgate with `slots: adaptive`.
    Tollgate,
    /// The same with priority classes.
    TollgateClasses,
}

impl Contestant {
    /// All contestants, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Nothing,
        Self::EnvoyAdaptiveConcurrency,
        Self::EnvoyAdmissionControl,
        Self::Tollgate,
        Self::TollgateClasses,
    ];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::EnvoyAdaptiveConcurrency => "envoy-adaptive-concurrency",
            Self::EnvoyAdmissionControl => "envoy-admission-control",
            Self::Tollgate => "tollgate-adaptive",
            Self::TollgateClasses => "tollgate-adaptive-classes",
        }
    }

    fn is_envoy(self) -> bool {
        matches!(self, Self::EnvoyAdaptiveConcurrency | Self::EnvoyAdmissionControl)
    }

    /// Returns the name of its program, and the version that it prints.
    pub fn version(self, programs: &Programs) -> io::Result<(&'static str, String)> {
        if self.is_envoy() {
            return Ok(("envoy", envoy::envoy_version(&programs.envoy)?));
        }
        Ok(("tollgate", version(&programs.tollgate, "--version")?))
    }

    /// Starts the proxy before an upstream.
    pub fn start(self, programs: &Programs, upstream: SocketAddr, folder: &Path) -> io::Result<Proxy> {
        let folder = folder.join(self.name());
        fs::create_dir_all(&folder)?;
        let place = Place { folder, listen: free_address()?, upstream };
        let admin = free_address()?;
        let (name, text) = match self.filter() {
            Some(filter) => ("envoy.json", format!("{:#}\n", bootstrap(&place, admin, filter))),
            None => ("tollgate.yaml", self.policy(upstream)),
        };
        let config = place.folder.join(name);
        fs::write(&config, text)?;
        let command = if self.is_envoy() {
            envoy::command(&programs.envoy, &config, thread::available_parallelism()?.into())
        } else {
            tollgate(&programs.tollgate, &config, place.listen, admin)
        };
        let server = Server::start(&command, None, place.listen, &place.folder, probe::answers)?;
        Ok(Proxy { server, limit: self.learned_limit(admin) })
    }

    /// Returns the place of the learned limit, if the proxy learns one.
    fn learned_limit(self, admin: SocketAddr) -> Option<LearnedLimit> {
        let (path, metric) = match self {
            Self::Nothing | Self::EnvoyAdmissionControl => return None,
            Self::EnvoyAdaptiveConcurrency => (
                "/stats?filter=gradient_controller.concurrency_limit",
                "gradient_controller.concurrency_limit:",
            ),
            Self::Tollgate | Self::TollgateClasses => ("/metrics", "tollgate_adaptive_slots{"),
        };
        Some(LearnedLimit { address: admin, path, metric })
    }

    /// Returns the policy of Tollgate.
    fn policy(self, upstream: SocketAddr) -> String {
        let gateway = format!("gateway: {{upstream: \"http://{upstream}\", timeouts: {{headers: 1s}}}}\n");
        gateway
            + match self {
                Self::TollgateClasses => CLASSES,
                Self::Tollgate => ADAPTIVE,
                _ => NONE,
            }
    }

    /// Returns the filter of Envoy.
    fn filter(self) -> Option<Value> {
        match self {
            Self::EnvoyAdaptiveConcurrency => Some(adaptive_concurrency()),
            Self::EnvoyAdmissionControl => Some(admission_control()),
            _ => None,
        }
    }
}

/// A running proxy.
pub struct Proxy {
    /// The program.
    pub server: Server,
    /// The limit that it learns.
    pub limit: Option<LearnedLimit>,
}

/// A policy needs at least one limit; this one applies to no request of the benchmark.
const NONE: &str = "limits: [{endpoint: /never, by: ip, bucket: 1/minute}]\n";

const ADAPTIVE: &str = "limits: [{name: upstream, by: global, slots: adaptive}]\n";

const CLASSES: &str = "priorities:
  - {name: critical, endpoint: /critical}
  - {name: normal}
  - {name: bulk, endpoint: /bulk}
limits: [{name: upstream, by: global, slots: adaptive}]
";

fn tollgate(program: &Path, config: &Path, listen: SocketAddr, api: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(config);
    command.arg("--set").arg(format!("listen.gateway={listen}"));
    command.arg("--set").arg(format!("listen.api={api}"));
    command.args(["--set", "listen.rls=off", "--set", "listen.resp=off"]);
    command
}

/// Returns the configuration of Envoy: that of the gateway benchmark, with a timeout and an admin server.
fn bootstrap(place: &Place, admin: SocketAddr, filter: Value) -> Value {
    let mut config = envoy::bootstrap(place, Some(filter));
    config["admin"] = json!({"address": envoy::socket(admin)});
    let manager =
        &mut config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["timeout"] = json!("1s");
    config
}

/// The configuration of Envoy's documentation of this filter.
fn adaptive_concurrency() -> Value {
    json!({
        "name": "envoy.filters.http.adaptive_concurrency",
        "typed_config": {
            "@type": envoy::kind("filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"),
            "gradient_controller_config": {
                "sample_aggregate_percentile": {"value": 90},
                "concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
                "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": "60s", "request_count": 50},
            },
            "enabled": {"default_value": true, "runtime_key": "adaptive_concurrency.enabled"},
        },
    })
}

/// The configuration of Envoy's documentation of this filter, with a shorter window, so that it reacts within the
/// measurement, and a larger rejection probability: at four times the capacity, 80 % are hardly enough.
fn admission_control() -> Value {
    json!({
        "name": "envoy.filters.http.admission_control",
        "typed_config": {
            "@type": envoy::kind("filters.http.admission_control.v3.AdmissionControl"),
            "enabled": {"default_value": true, "runtime_key": "admission_control.enabled"},
            "sampling_window": "5s",
            "sr_threshold": {"default_value": {"value": 95}, "runtime_key": "admission_control.sr_threshold"},
            "aggression": {"default_value": 1.5, "runtime_key": "admission_control.aggression"},
            "max_rejection_probability": {
                "default_value": {"value": 95},
                "runtime_key": "admission_control.max_rejection_probability",
            },
            "success_criteria": {"http_criteria": {"http_success_status": [{"start": 100, "end": 500}]}},
        },
    })
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Limiter, PriorityClass};

    use super::*;
    use crate::overload::arrivals::Class;

    #[test]
    fn each_class_of_the_load_is_a_class_of_the_policy() {
        let limiter = Limiter::from_policy(CLASSES).unwrap();
        for class in Class::ALL {
            let decision = limiter.check(&Call::new("GET", class.path()).ip([127, 0, 0, 1]));
            assert_eq!(decision.priority().map(PriorityClass::name), Some(class.name()), "{class:?}");
        }
    }
}
