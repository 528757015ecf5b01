//! A foreign script blocks Redis.

use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate_testkit::{Program, Redis};

use crate::harness::{Decided, Fault, ServedNode, both, run, wait_until_it_serves};

both! { no_request_waits_for_an_endless_script }

fn no_request_waits_for_an_endless_script(decided: Decided) {
    let redis = Redis::start_with(&["--busy-reply-threshold", "500"]);
    let fault = Fault {
        place: 100,
        name: "somebody's endless script, killed after 2 s (silent, then `BUSY`, `SCRIPT KILL`)",
        topology: "standalone",
        url: format!("'{}'", redis.url()),
        decided,
        nodes: 2,
        why: "",
    };
    let report = run(&fault, |rig| {
        let mut endless = Command::new("redis-cli");
        endless.args(["-p", &redis.port().to_string(), "EVAL", "while true do end", "0"]);
        let _endless = Program::start({
            endless.stdout(Stdio::null()).stderr(Stdio::null());
            endless
        });
        rig.endure(Duration::from_secs(2));
        redis.cli(&["SCRIPT", "KILL"]);
        ServedNode::since(wait_until_it_serves(&redis))
    });
    assert!(report.degraded > 0);
}
