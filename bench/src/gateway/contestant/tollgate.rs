//! Tollgate's gateway, as `tollgate serve` starts it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contestant, Duty, Place, version};

/// The Tollgate contestant.
pub struct Tollgate {
    /// The program.
    pub program: PathBuf,
    /// Telemetry setting.
    pub watch: Watch,
}

/// Telemetry setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The default: everything is counted and notable decisions are recorded.
    Default,
    /// The default, and spans are sent to a collector, which is the upstream.
    All,
    /// Telemetry off.
    Off,
}

impl Watch {
    /// Returns the configuration sections.
    fn sections(self, place: &Place) -> String {
        match self {
            Self::Default => String::new(),
            Self::Off => "observe: off\n".to_owned(),
            Self::All => format!(
                "observe: {{records: 16384}}
log: {{refusals: 10/second}}
traces: {{endpoint: \"http://{}\", sample: 1%}}
alerts: {{at_zero_for: 5m}}
",
                place.upstream
            ),
        }
    }
}

/// Three limits that apply to every request: by address, by key, and global.
const AMPLE: &str = "limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1000000/second}
";

/// The same three; the last one is exhausted after one request.
const SPENT: &str = "limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1/day}
";

/// The limits of [`AMPLE`], behind a node shedder that [`HELD_REQUESTS`](crate::gateway::trial::HELD_REQUESTS)
/// overload.
const SHED_NODE: &str = "shed: {node: {inflight: 1}}
limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1000000/second}
";

/// The first two limits of [`AMPLE`], and an adaptive limit for a single request.
const SHED_ADAPTIVE: &str = "limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, slots: {adaptive: {min: 1, max: 1}}}
";

/// A policy needs at least one limit; this one applies to no request of the benchmark.
const NONE: &str = "limits: [{endpoint: /never, by: ip, bucket: 1/minute}]\n";

impl Contestant for Tollgate {
    fn name(&self) -> &'static str {
        match self.watch {
            Watch::Default => "tollgate",
            Watch::All => "tollgate-all-on",
            Watch::Off => "tollgate-unwatched",
        }
    }

    /// The cost of telemetry is measured on admitted requests.
    fn duties(&self) -> &'static [Duty] {
        match self.watch {
            Watch::Default => &Duty::ALL,
            Watch::All | Watch::Off => &[Duty::Admit],
        }
    }

    fn version(&self) -> io::Result<String> {
        version(&self.program, "--version")
    }

    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String) {
        let limits = match duty {
            Duty::Off => NONE,
            Duty::Admit => AMPLE,
            Duty::Refuse => SPENT,
            Duty::ShedNode => SHED_NODE,
            Duty::ShedAdaptive => SHED_ADAPTIVE,
        };
        let watch = self.watch.sections(place);
        ("tollgate.yaml", format!("gateway: {{upstream: \"http://{}\"}}\n{watch}{limits}", place.upstream))
    }

    fn command(&self, config: &Path, place: &Place) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(config);
        command.arg("--set").arg(format!("listen.gateway={}", place.listen));
        command.args(["--set", "listen.api=off", "--set", "listen.rls=off", "--set", "listen.resp=off"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Limiter};

    use super::{AMPLE, NONE, SHED_NODE, SPENT};
    use crate::gateway::{API_KEY, PATH};

    #[test]
    fn each_policy_fulfills_its_duty() {
        check(NONE, 0, [true, true]);
        check(AMPLE, 3, [true, true]);
        check(SPENT, 3, [true, false]);
        check(SHED_NODE, 3, [true, true]);
    }

    fn check(policy: &str, limits: usize, answers: [bool; 2]) {
        let limiter = Limiter::from_policy(policy).unwrap();
        let call = Call::new("GET", PATH).ip([127, 0, 0, 1]).api_key(API_KEY);
        for allowed in answers {
            let decision = limiter.check(&call);
            assert_eq!((decision.is_allowed(), decision.limits().len()), (allowed, limits), "{policy}");
        }
    }
}
