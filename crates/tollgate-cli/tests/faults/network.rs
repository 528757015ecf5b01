//! The network loses packets, or the link is cut.

use std::time::{Duration, Instant};

use tollgate_testkit::{Lan, Redis};

use crate::harness::{Decided, Fault, ServedNode, both, run, wait_until_it_serves};

both! {
    a_network_that_loses_every_fifth_packet_forgets_nothing,
    a_link_that_is_cut_in_silence_forgets_nothing,
}

fn fault<'f>(place: u32, name: &'f str, redis: &Redis, decided: Decided) -> Fault<'f> {
    let url = format!("'{}'", redis.url());
    Fault { place, name, topology: "standalone", url, decided, nodes: 2, why: "" }
}

fn a_network_that_loses_every_fifth_packet_forgets_nothing(decided: Decided) {
    let lan = Lan::new();
    let redis = Redis::start_in(&lan);
    run(&fault(40, "every fifth packet lost each way, for 3 s", &redis, decided), |rig| {
        lan.drop_packets(20);
        rig.endure(Duration::from_secs(3));
        lan.drop_packets(0);
        ServedNode::since(Instant::now())
    });
}

fn a_link_that_is_cut_in_silence_forgets_nothing(decided: Decided) {
    let lan = Lan::new();
    let redis = Redis::start_in(&lan);
    let report = run(&fault(41, "the link cut in silence, for 3 s", &redis, decided), |rig| {
        lan.cut();
        rig.endure(Duration::from_secs(3));
        lan.mend();
        ServedNode::since(wait_until_it_serves(&redis))
    });
    assert!(report.degraded > 0);
}
