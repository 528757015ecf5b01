//! Tollgate's own gateway, as `tollgate serve` starts it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contestant, Duty, Place, version};

/// `tollgate serve`.
pub struct Tollgate {
    /// The program.
    pub program: PathBuf,
}

/// Three limits that apply to every request: by address, by key, and for all together.
const AMPLE: &str = "limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1000000/second}
";

/// The same three; the last has nothing left after one request.
const SPENT: &str = "limits:
  - {endpoint: /api/**, by: ip, bucket: 1000000/second}
  - {endpoint: /api/v1/**, by: api_key, bucket: 1000000/second}
  - {endpoint: /api/v1/posts, by: global, bucket: 1/day}
";

/// A policy has at least one limit; this one applies to nothing that is asked for.
const NONE: &str = "limits: [{endpoint: /never, by: ip, bucket: 1/minute}]\n";

impl Contestant for Tollgate {
    fn name(&self) -> &'static str {
        "tollgate"
    }

    fn version(&self) -> io::Result<String> {
        version(&self.program, "--version")
    }

    fn config(&self, duty: Duty, place: &Place) -> (&'static str, String) {
        let limits = match duty {
            Duty::Off => NONE,
            Duty::Admit => AMPLE,
            Duty::Refuse => SPENT,
        };
        ("tollgate.yaml", format!("gateway: {{upstream: \"http://{}\"}}\n{limits}", place.upstream))
    }

    fn command(&self, config: &Path, place: &Place) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--config").arg(config);
        command.arg("--set").arg(format!("listen.gateway={}", place.listen));
        command.args(["--set", "listen.api=off"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Limiter};

    use super::{AMPLE, NONE, SPENT};
    use crate::gateway::{API_KEY, PATH};

    #[test]
    fn each_policy_does_what_its_duty_says() {
        check(NONE, 0, [true, true]);
        check(AMPLE, 3, [true, true]);
        check(SPENT, 3, [true, false]);
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
