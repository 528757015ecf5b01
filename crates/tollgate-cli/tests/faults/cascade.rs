//! The cascade: a spike of requests meets a slow Redis.
//!
//! Without protection a limiter that waits for its store makes every caller wait, and
//! one that lets everybody pass when it has waited long enough sends the spike to the
//! origin just when nobody counts. Deadline, breaker and local share are there so that
//! neither happens: shown with and without them, by the same callers.

mod origin;
mod slow_link;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_testkit::{Redis, Tollgate};

use self::origin::Origin;
use self::slow_link::SlowLink;
use crate::client::Client;
use crate::harness::{BINARY, percentile, write_row};

/// What everybody together may have in a day.
const LIMIT: usize = 40;
/// What this node grants of it while it cannot ask: a fifth.
const SHARE: usize = 8;
/// Callers of the spike, and what each of them asks.
const CALLERS: usize = 100;
const QUESTIONS: usize = 5;
/// How long Redis takes for each question: more than any deadline here.
const REDIS_DELAY: Duration = Duration::from_millis(800);
/// The deadline of whoever has no protection.
const UNPROTECTED_DEADLINE: Duration = Duration::from_millis(500);

/// What came of a spike.
struct Spike {
    /// Requests that reached the origin.
    reached: usize,
    /// Requests that waited there at once.
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

/// One caller: asks so often, and says what it was told and how long that took.
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

/// All callers at once, on a Redis that is slow or not.
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
    // All was well a moment ago.
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
    let told = "off: `on_outage: allow`, no breaker, a deadline of 500 ms";
    without.write(201, told, "800 ms for each question", None);

    let with = spike("", "local", true);
    with.write(202, "on (the defaults)", "800 ms for each question", Some(LIMIT + SHARE));

    for spike in [&well, &without, &with] {
        assert_eq!(spike.count(200) + spike.count(429), CALLERS * QUESTIONS, "{:?}", spike.statuses);
    }
    assert!(well.reached <= LIMIT + SHARE, "{}", well.reached);
    // Without: everybody waits for Redis, in vain, and then for an origin that has never
    // seen so many at once.
    assert_eq!(without.reached, (CALLERS + 1) * QUESTIONS, "{:?}", without.statuses);
    // Whoever joins a question under way waits for what is left of its deadline.
    assert!(without.median() >= UNPROTECTED_DEADLINE / 2, "{:?}", without.median());
    // With: the origin sees what limit and share allow, and the others hear so soon.
    assert!(with.reached <= LIMIT + SHARE, "{}", with.reached);
    assert!(with.reached > QUESTIONS, "the share is granted");
    assert!(with.median() < without.median(), "{:?}, {:?}", with.median(), without.median());
    assert!(with.queued <= without.queued, "{}, {}", with.queued, without.queued);
}
