//! Redis is out of memory.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_testkit::{Program, Redis};

use crate::harness::{Decided, Fault, ServedNode, both, run, wait_until_it_serves};

both! {
    a_full_redis_that_evicts_nothing_forgets_nothing,
    a_full_redis_that_evicts_gives_back_what_evicted_keys_had_spent,
}

fn fault<'f>(place: u32, name: &'f str, redis: &Redis, decided: Decided) -> Fault<'f> {
    let url = format!("'{}'", redis.url());
    Fault { place, name, topology: "standalone", url, decided, nodes: 2, why: "" }
}

fn a_full_redis_that_evicts_nothing_forgets_nothing(decided: Decided) {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]);
    let name = "`maxmemory` reached for 2 s, `noeviction` (`OOM`)";
    let report = run(&fault(60, name, &redis, decided), |rig| {
        redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        rig.endure(Duration::from_secs(2));
        redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        ServedNode::since(wait_until_it_serves(&redis))
    });
    assert!(report.degraded > 0);
}

fn a_full_redis_that_evicts_gives_back_what_evicted_keys_had_spent(decided: Decided) {
    let redis = Redis::start_with(&[
        "--maxmemory-policy",
        "allkeys-lru",
        "--enable-debug-command",
        "yes",
        "--notify-keyspace-events",
        "Ee",
    ]);
    let heard = redis.folder().join("evicted");
    let mut listen = Command::new("redis-cli");
    listen.args(["-p", &redis.port().to_string(), "PSUBSCRIBE", "__keyevent@0__:evicted"]);
    listen.stdout(Stdio::from(fs::File::create(&heard).unwrap()));
    let _listener = Program::start(listen);
    let evicted = || {
        let heard = fs::read(&heard).unwrap();
        String::from_utf8_lossy(&heard)
            .lines()
            .filter(|it| it.starts_with("tg1:") && it.contains("tight-"))
            .count()
    };
    let why = "what evicted keys had spent is forgotten, each time anew";
    let fault = Fault { why, ..fault(61, "`maxmemory` reached for 2 s, `allkeys-lru`", &redis, decided) };
    run(&fault, |rig| {
        let used = redis.cli(&["INFO", "memory"]);
        let used = used.lines().find_map(|line| line.trim().strip_prefix("used_memory:")).unwrap();
        let room = used.parse::<u64>().unwrap() + 200_000;
        redis.cli(&["CONFIG", "SET", "maxmemory", &room.to_string()]);
        // Other clients repeatedly write far more than fits.
        for round in 0..10 {
            redis.cli(&["DEBUG", "POPULATE", "2000", &format!("stranger-{round}"), "100"]);
            redis.cli(&["SET", &format!("stranger-{round}"), "one more"]);
            rig.endure(Duration::from_millis(200));
        }
        redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        let at = Instant::now();
        rig.endure(Duration::from_millis(100));
        assert!(!redis.cli(&["INFO", "stats"]).contains("evicted_keys:0\r"), "nothing was evicted");
        ServedNode::with_loss(at, rig.charged().min(evicted() as u64 * fault.limit()))
    });
}
