//! Envoy's rate limit service and the Redis protocol on a Redis store: one budget for several
//! processes, and responses during an outage.
//!
//! Deadlines are long, so that a busy machine does not affect the result.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use crate::service::client::{get, get_json};
use crate::surfaces::grpc::Question;
use tollgate_testkit::{Redis, Scratch, Tollgate};

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");

/// A year, which does not end during a test.
const SHOP: &str =
    "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 50}}]\n";
const BY_ENVOYS_FILE: Question<'_> = Question { domain: "shop", key: "user", value: "ann" };
const BY_THE_POLICY: Question<'_> = Question { domain: "edge", key: "api_key", value: "k1" };
const DENIED_WITHOUT_REDIS: Question<'_> = Question { domain: "edge", key: "strict", value: "s" };
/// Fifty a day.
const THROTTLE: &str = "CL.THROTTLE ann 49 1 86400\r\n";

/// Starts a server on Redis, with Envoy's files and both protocols.
fn start(redis: &Redis, folder: &Scratch) -> Tollgate {
    let config = format!(
        "store: {{url: '{}', deadline: 10s, outage: {{failures: 1}}}}\n\
         listen: {{rls: \"127.0.0.1:0\", resp: \"127.0.0.1:0\"}}\n\
         limits:\n\
         - {{name: keys, domain: edge, descriptor: [api_key], bucket: \"1/day, burst 50\"}}\n\
         - {{name: strict, domain: edge, descriptor: [strict], bucket: 50/day, on_outage: deny}}\n",
        redis.url()
    );
    Tollgate::start_with(BINARY, &config, &["--envoy-config", folder.path().to_str().unwrap()])
}

fn envoys_files() -> Scratch {
    let folder = Scratch::new();
    folder.write("shop.yaml", SHOP);
    folder
}

/// Returns the number of admitted commands on one connection. None of them may be an error.
#[track_caller]
fn throttled(resp: SocketAddr, times: usize) -> usize {
    let mut stream = TcpStream::connect(resp).unwrap();
    stream.write_all(format!("{}QUIT\r\n", THROTTLE.repeat(times)).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("*5\r\n").count(), times, "{answer}");
    assert!(!answer.lines().any(|line| line.starts_with('-')), "{answer}");
    answer.matches("*5\r\n:0\r\n").count()
}

/// Calls two servers concurrently: together they admit exactly the limit.
#[track_caller]
fn share(ask: impl Fn(&Tollgate) -> usize + Sync) {
    let (redis, folder) = (Redis::start(), envoys_files());
    let servers = [start(&redis, &folder), start(&redis, &folder)];
    let ask = &ask;
    let total: usize = thread::scope(|scope| {
        let callers: Vec<_> = servers.iter().chain(&servers).map(|it| scope.spawn(move || ask(it))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(total, 50, "{}\n{}", servers[0].log(), servers[1].log());
    for server in &servers {
        assert_eq!(degraded(server.api), 0);
    }
}

/// Returns the number of degraded decisions.
fn degraded(api: SocketAddr) -> u64 {
    let page = String::from_utf8(get(api, "/metrics").body).unwrap();
    let counts = page.lines().filter_map(|line| line.strip_prefix("tollgate_degraded_decisions_total{"));
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn two_servers_share_what_a_file_of_envoys_grants_exactly() {
    share(|server| BY_ENVOYS_FILE.admitted(server.rls.unwrap(), 20));
}

#[test]
fn two_servers_share_what_a_limit_on_descriptors_grants_exactly() {
    share(|server| BY_THE_POLICY.admitted(server.rls.unwrap(), 20));
}

#[test]
fn two_servers_share_what_cl_throttle_grants_exactly() {
    share(|server| throttled(server.resp.unwrap(), 20));
}

#[test]
fn during_an_outage_the_outage_rules_decide_and_then_redis_again() {
    let (redis, folder) = (Redis::start(), envoys_files());
    let mut server = start(&redis, &folder);
    let (rls, resp, api) = (server.rls.unwrap(), server.resp.unwrap(), server.api);
    for question in [BY_ENVOYS_FILE, BY_THE_POLICY, DENIED_WITHOUT_REDIS] {
        assert_eq!(question.admitted(rls, 2), 2, "{question:?}");
    }
    assert_eq!((throttled(resp, 2), degraded(api)), (2, 0));

    redis.kill();
    for question in [BY_ENVOYS_FILE, BY_THE_POLICY] {
        // A share of the limit is counted locally.
        let admitted = question.admitted(rls, 60);
        assert!((1..=50).contains(&admitted), "{question:?}: {admitted}");
    }
    assert_eq!(DENIED_WITHOUT_REDIS.admitted(rls, 5), 0, "it says on_outage: deny");
    let admitted = throttled(resp, 60);
    assert!((1..=50).contains(&admitted), "{admitted}");
    let without = degraded(api);
    assert!(without >= 60 * 3, "{without}");

    redis.restart();
    server.program.wait_until("Redis", || get_json(api, "/readyz")["store"]["state"] == "ok");
    server.program.wait_until("an answer of Redis", || {
        let before = degraded(api);
        DENIED_WITHOUT_REDIS.admitted(rls, 1) == 1 && degraded(api) == before
    });
    let before = degraded(api);
    BY_ENVOYS_FILE.admitted(rls, 3);
    BY_THE_POLICY.admitted(rls, 3);
    throttled(resp, 3);
    assert_eq!(degraded(api), before);
    assert!(redis.cli(&["DBSIZE"]).parse::<u64>().unwrap() >= 3, "Redis counts again");
}
