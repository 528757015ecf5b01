//! Foreign data under keys of Tollgate.

use std::time::{Duration, Instant};

use tollgate_testkit::Redis;

use crate::harness::{Decided, Fault, ServedNode, both, run, tight_key};

both! { foreign_data_degrade_their_key_and_no_other }

fn foreign_data_degrade_their_key_and_no_other(decided: Decided) {
    let redis = Redis::start();
    let fault = Fault {
        place: 90,
        name: "a list where the state of one key should be, removed after 2 s",
        topology: "standalone",
        url: format!("'{}'", redis.url()),
        decided,
        nodes: 2,
        why: "what that key had spent was overwritten",
    };
    let victim = fault.keys() - 1;
    let report = run(&fault, |rig| {
        let names = redis.cli(&["--no-raw", "KEYS", &format!("tg1:*{}*", tight_key(victim))]);
        let (_, name) =
            names.lines().next().and_then(|line| line.split_once(") ")).expect("it was asked for");
        // Quoted, because the name has bytes that are not UTF-8. One command, because the load
        // continues.
        let script = "\"redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'stranger')\"";
        redis.cli(&["--quoted-input", "EVAL", script, "1", name]);
        rig.endure(Duration::from_secs(2));
        redis.cli(&["--quoted-input", "DEL", name]);
        ServedNode::with_loss(Instant::now(), fault.limit())
    });
    let of = |degraded: bool, victim: Option<usize>| {
        let is = |it: &&crate::harness::Sample| it.degraded == Some(degraded) && it.tight == victim;
        report.samples.iter().filter(is).count()
    };
    let degraded = of(true, Some(victim));
    assert!(degraded > 0);
    // A stall of the machine may degrade other keys briefly; a foreign key must not do so permanently.
    let others = report.degraded - degraded;
    assert!(others <= report.decisions / 10, "{others} of {}", report.decisions);
}
