//! The wall clock changes while Redis runs.

use std::time::{Duration, Instant};

use tollgate_testkit::Redis;

use crate::harness::{Decided, Fault, ServedNode, both, run};

both! { a_clock_step_refills_only_the_time_that_it_showed }

const HOUR: u64 = 3_600;

fn a_clock_step_refills_only_the_time_that_it_showed(decided: Decided) {
    let redis = Redis::start_with_clock();
    let fault = Fault {
        place: 80,
        name: "wall clock of Redis 1 h ahead, 2 h back, 1 h ahead, every 600 ms",
        topology: "standalone",
        url: format!("'{}'", redis.url()),
        decided,
        nodes: 2,
        why: "what two hours refill: the clock showed them",
    };
    run(&fault, |rig| {
        let step = i64::try_from(HOUR).unwrap();
        for seconds in [step, -2 * step, step] {
            redis.step_clock(seconds);
            rig.endure(Duration::from_millis(600));
        }
        let each = (2 * HOUR * fault.limit()).div_ceil(24 * HOUR);
        ServedNode::with_loss(Instant::now(), each * fault.keys() as u64)
    });
}
