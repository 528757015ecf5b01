//! The cascade: a spike of requests while Redis is slow.
//!
//! Without protection, a limiter that waits for its store delays every caller, and a limiter that
//! admits after a timeout sends the spike to the origin uncounted. Deadline, breaker and local share
//! prevent both. The test runs the same callers with and without them.

mod origin;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Redis, SlowLink, Tollgate};

use self::origin::Origin;
use crate::client::Client;
use crate::harness::{BINARY, percentile, write_row};

/// The limit for all callers together in a day.
const LIMIT: usize = 40;
/// The share that this node grants during an outage: a fifth.
const SHARE: usize = 8;
/// The callers of the spike, and the requests of each.
const CALLERS: usize = 100;
const QUESTIONS: usize = 5;
/// The delay of each call to Redis, longer than any deadline here.
const REDIS_DELAY: Duration = Duration::from_millis(800);
/// The deadline without protection.
const UNPROTECTED_DEADLINE: Duration = Duration::from_millis(500);

/// The result of a spike.
struct Spike {
    /// The requests that reached the origin.
    reached: usize,
    /// The maximum number of requests that waited there at once.
    queued: usize,
    waits: Vec<Duration>,
    statuses: Vec<u16>,
}

impl Spike {
    fn count(&self, status: u16) -> usize {
        self.statuses.iter().filter(|it| **it == status).count()
    }

    fn median(&self) -> Duration {
        percentile(self.waits.clone(), 50)
    }

    fn longest(&self) -> Duration {
        percentile(self.waits.clone(), 100)
    }

    fn write(&self, place: u32, protections: &str, redis: &str, allowed: Option<usize>) {
        let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
        write_row(
            place,
            &json!({
                "protections": protections,
                "redis": redis,
                "asked": self.statuses.len() + QUESTIONS,
                "reached": self.reached,
                "allowed": allowed,
                "queued": self.queued,
                "median_us": micros(self.median()),
                "longest_us": micros(self.longest()),
                "errors": self.statuses.len() - self.count(200) - self.count(429),
            }),
        );
    }
}

/// Runs one caller, and returns the status and the latency of each request.
fn ask(gateway: SocketAddr) -> Vec<(u16, Duration)> {
    let mut connection = None;
    let mut answers = Vec::new();
    for _ in 0..QUESTIONS {
        let start = Instant::now();
        let answer = connection.take().or_else(|| Client::connect(gateway).ok()).and_then(|mut client| {
            let answer = client.get("/").ok()?;
            connection = (!answer.closes).then_some(client);
            Some(answer.status)
        });
        answers.push((answer.unwrap_or(0), start.elapsed()));
    }
    answers
}

/// Runs all callers at once, on a slow or a normal Redis.
fn spike(store: &str, on_outage: &str, is_slow: bool) -> Spike {
    let (redis, origin) = (Redis::start(), Origin::start());
    let link = SlowLink::to(&redis);
    let policy = format!(
        "store: {{url: 'redis://{}', {store}}}\ngateway: {{upstream: 'http://{}', workers: 1}}\nlimits:\n  \
         - {{name: everybody, by: global, bucket: {LIMIT}/day, on_outage: {on_outage}}}\n",
        link.address(),
        origin.address()
    );
    let tollgate = Tollgate::start(BINARY, &policy);
    // The store was healthy before the spike.
    assert!(ask(tollgate.gateway).iter().all(|(status, _)| *status == 200), "{}", tollgate.log());
    if is_slow {
        link.delay(REDIS_DELAY);
    }
    let gateway = tollgate.gateway;
    let callers: Vec<_> = (0..CALLERS).map(|_| thread::spawn(move || ask(gateway))).collect();
    let answers = callers.into_iter().flat_map(|caller| caller.join().unwrap());
    let (statuses, waits) = answers.unzip();
    Spike { reached: origin.served(), queued: origin.longest_queue(), waits, statuses }
}

#[test]
fn a_spike_on_a_slow_redis_reaches_the_origin_only_without_protection() {
    let well = spike("", "local", false);
    well.write(200, "on (the defaults)", "well", Some(LIMIT));

    let store = format!(
        "deadline: {}ms, deny_cache: off, outage: {{failures: 1000000, grace: 1h}}",
        UNPROTECTED_DEADLINE.as_millis()
    );
    let without = spike(&store, "allow", true);
    let settings = "off: `on_outage: allow`, no breaker, a deadline of 500 ms";
    without.write(201, settings, "800 ms for each question", None);

    let with = spike("", "local", true);
    with.write(202, "on (the defaults)", "800 ms for each question", Some(LIMIT + SHARE));

    for spike in [&well, &without, &with] {
        assert_eq!(spike.count(200) + spike.count(429), CALLERS * QUESTIONS, "{:?}", spike.statuses);
    }
    assert!(well.reached <= LIMIT + SHARE, "{}", well.reached);
    // Without protection, every caller waits for Redis in vain, and then for an overloaded origin.
    assert_eq!(without.reached, (CALLERS + 1) * QUESTIONS, "{:?}", without.statuses);
    // A request that joins a pending call waits for the rest of its deadline.
    assert!(without.median() >= UNPROTECTED_DEADLINE / 2, "{:?}", without.median());
    // With protection, the origin gets the requests that limit and share admit; the others are refused soon.
    assert!(with.reached <= LIMIT + SHARE, "{}", with.reached);
    assert!(with.reached > QUESTIONS, "the share is granted");
    assert!(with.median() < without.median(), "{:?}, {:?}", with.median(), without.median());
    assert!(with.queued <= without.queued, "{}, {}", with.queued, without.queued);
}
