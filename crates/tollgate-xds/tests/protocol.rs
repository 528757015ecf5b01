//! The protocol, response by response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate_envoy::{DescriptorMatch, DomainCache, Domains, EnvoyConfig};
use tollgate_xds::{Proposal, RESOURCE_TYPE_URL, XdsClient, XdsCounters, XdsServer, XdsSettings};

use crate::server::{Rule, SeenRequest, Server, Stream, config};

/// Far above the needs of any machine: it only ends tests that have failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A client, and the receiver of its configurations.
struct Client {
    proposals: mpsc::Receiver<Proposal>,
    counters: Arc<XdsCounters>,
}

impl Client {
    fn start(server: &Server) -> Self {
        Self::with(server, |_| {})
    }

    fn with(server: &Server, change: impl FnOnce(&mut XdsSettings)) -> Self {
        let address = XdsServer::parse(&server.address.to_string()).unwrap();
        let mut settings = XdsSettings::new(address, "node-1");
        change(&mut settings);
        let (sender, proposals) = mpsc::channel(1);
        let client = XdsClient::new(settings, sender, 7);
        let counters = client.counters();
        tokio::spawn(client.run());
        Self { proposals, counters }
    }

    async fn proposal(&mut self) -> Proposal {
        timeout(TEST_TIMEOUT, self.proposals.recv()).await.unwrap().unwrap()
    }

    /// Accepts the next configuration, and returns it.
    async fn accept(&mut self) -> EnvoyConfig {
        let Proposal { config, reply, .. } = self.proposal().await;
        reply.send(Ok(())).unwrap();
        config
    }
}

fn ack(version: &str, nonce: &str) -> SeenRequest {
    let (node, type_url) = ("node-1".to_owned(), RESOURCE_TYPE_URL.to_owned());
    SeenRequest {
        version: version.to_owned(),
        nonce: nonce.to_owned(),
        node,
        type_url,
        ..SeenRequest::default()
    }
}

fn names(config: &EnvoyConfig) -> Vec<&str> {
    config.domains().iter().map(|it| it.name.as_str()).collect()
}

/// Starts a client whose first configuration, version `1`, is in force.
async fn configured() -> (Server, Client, Stream) {
    let mut server = Server::start().await;
    let mut client = Client::start(&server);
    let mut stream = server.stream().await;
    assert_eq!(stream.request().await, ack("", ""));
    stream.send("1", "n1", &[config("shop", &[Rule::per_minute("user", 5)])]);
    assert_eq!(names(&client.accept().await), ["shop"]);
    assert_eq!(stream.request().await, ack("1", "n1"));
    (server, client, stream)
}

#[tokio::test]
async fn each_response_is_answered_once_and_in_order() {
    let (_server, mut client, mut stream) = configured().await;
    let shop = |requests| config("shop", &[Rule::per_minute("user", requests)]);
    // Two at once: the second is not looked at before the first is answered.
    stream.send("2", "n2", &[shop(6)]);
    stream.send("3", "n3", &[shop(7)]);
    for (version, nonce, requests) in [("2", "n2", 6), ("3", "n3", 7)] {
        let config = client.accept().await;
        let policy = config.apply(tollgate::Policy::default()).unwrap();
        let found = Domains::of(&policy).unwrap().find("shop", &[("user", "ann")]);
        let DescriptorMatch::Limited(leaf) = found else { panic!("{found:?}") };
        assert_eq!(leaf.requests_per_unit(), Some(requests));
        assert_eq!(stream.request().await, ack(version, nonce));
    }
    assert_eq!(stream.try_request(), None);
    let status = client.counters.status();
    assert_eq!((status.accepted, status.rejected, status.version.as_str()), (3, 0, "3"));
}

#[tokio::test]
async fn a_resource_that_has_not_changed_is_the_same_domain_in_the_next_configuration() {
    let (_server, mut client, mut stream) = configured().await;
    let of = |name: &str, requests| config(name, &[Rule::per_minute("k", requests)]);
    stream.send("2", "n2", &[of("a", 1), of("b", 1), of("c", 1)]);
    let before = client.accept().await;
    assert_eq!(stream.request().await, ack("2", "n2"));
    stream.send("3", "n3", &[of("c", 1), of("b", 2), of("a", 1)]);
    let after = client.accept().await;
    assert_eq!(stream.request().await, ack("3", "n3"));
    let pairs = before.domains().iter().zip(after.domains());
    let is_same: Vec<_> = pairs.map(|(before, after)| Arc::ptr_eq(before, after)).collect();
    assert_eq!((names(&after), is_same), (vec!["a", "b", "c"], vec![true, false, true]));
    // Applying it compiles the changed domain alone.
    let mut cache = DomainCache::default();
    for (config, compiled) in [(before, 3), (after, 4)] {
        config.apply_cached(tollgate::Policy::default(), &mut cache).unwrap();
        assert_eq!(cache.compiled(), compiled);
    }
}

#[tokio::test]
async fn the_same_resources_in_another_order_are_no_change() {
    let (_server, mut client, mut stream) = configured().await;
    let (a, b) = (config("a", &[Rule::per_minute("k", 1)]), config("b", &[Rule::per_minute("k", 1)]));
    stream.send("2", "n2", &[b.clone(), a.clone()]);
    assert_eq!(names(&client.accept().await), ["a", "b"]);
    assert_eq!(stream.request().await, ack("2", "n2"));
    stream.send("3", "n3", &[a, b]);
    assert_eq!(stream.request().await, ack("3", "n3"));
    assert!(client.proposals.try_recv().is_err());
}

#[tokio::test]
async fn no_resources_are_no_limits_and_a_version_may_repeat_or_be_empty() {
    let (_server, mut client, mut stream) = configured().await;
    // The same version with other content.
    stream.send("1", "n2", &[config("shop", &[Rule::per_minute("user", 9)])]);
    client.accept().await;
    assert_eq!(stream.request().await, ack("1", "n2"));
    stream.send("", "n3", &[]);
    assert!(client.accept().await.domains().is_empty());
    assert_eq!(stream.request().await, ack("", "n3"));
}

#[tokio::test]
async fn no_resources_at_first_are_a_configuration_too() {
    let mut server = Server::start().await;
    let mut client = Client::start(&server);
    let mut stream = server.stream().await;
    stream.request().await;
    assert!(!client.counters.is_configured());
    stream.send("", "n1", &[]);
    assert!(client.accept().await.domains().is_empty());
    assert_eq!(stream.request().await, ack("", "n1"));
    assert!(client.counters.is_configured());
}

#[tokio::test]
async fn a_wrong_resource_is_rejected_with_its_place_and_the_last_version() {
    let (_server, mut client, mut stream) = configured().await;
    let below = |rule: Rule| vec![Rule { key: "route", value: "a", below: vec![rule], ..Rule::default() }];
    let deep = (0..120).fold(Rule::per_minute("k", 1), |rule, _| Rule {
        key: "k",
        below: vec![rule],
        ..Rule::default()
    });
    let twice = vec![Rule::per_minute("k", 1), Rule::per_minute("k", 2)];
    let limit = |unit, requests| Rule { key: "k", limit: Some((unit, requests)), ..Rule::default() };
    for (at, (resources, reason)) in [
        (vec![config("", &[])], "resource ``: the domain is empty"),
        (vec![config("tollgate", &[])], "the domain `tollgate` is reserved"),
        (
            vec![config("a", &[]), config("a", &twice[..1])],
            "two resources define the domain `a`: `a` and `a`",
        ),
        (vec![config("a", &[]), config("a", &[])], "two resources define the domain `a`, and are equal"),
        (
            vec![config("a", &below(Rule::default()))],
            "domain `a` > descriptor `route` with value `a`: a descriptor has an empty key",
        ),
        (vec![config("a", &twice)], "domain `a`: descriptor `k` is defined twice"),
        (vec![config("a", &below(limit(0, 5)))], "the unit 0 is unknown"),
        (vec![config("a", &[limit(8, 5)])], "the unit 8 is unknown"),
        (
            vec![config("a", &[Rule { unlimited: true, ..limit(1, 5) }])],
            "`unlimited` and `unit` cannot be combined",
        ),
        (
            vec![config("a", &[Rule { replaces: vec![""], ..limit(1, 5) }])],
            "an entry of `replaces` has an empty name",
        ),
        (
            vec![config("a", &[Rule { name: "n", replaces: vec!["n"], ..limit(1, 5) }])],
            "the limit `n` replaces itself",
        ),
        (vec![config("a", &[deep])], "nested deeper than 100"),
        (vec![vec![0xff, 0xff]], "this is not the protobuf of a RateLimitConfig"),
    ]
    .into_iter()
    .enumerate()
    {
        let (version, nonce) = (format!("bad-{at}"), format!("x{at}"));
        stream.send(&version, &nonce, &resources);
        let answer = timeout(TEST_TIMEOUT, stream.request()).await.unwrap();
        let error = answer.error.clone().unwrap_or_default();
        assert!(error.contains(reason), "{error}\n instead of {reason}");
        assert_eq!(SeenRequest { error: None, ..answer }, ack("1", &nonce));
    }
    assert!(client.proposals.try_recv().is_err());
    let status = client.counters.status();
    assert_eq!((status.rejected, status.version.as_str()), (13, "1"));
    assert!(status.problem.is_some());
    // The next valid one is accepted, and ends the problem.
    stream.send("9", "n9", &[]);
    client.accept().await;
    assert_eq!(stream.request().await, ack("9", "n9"));
    assert_eq!(client.counters.status().problem, None);
}

#[tokio::test]
async fn a_configuration_that_cannot_come_into_force_is_rejected_with_the_reason() {
    let (_server, mut client, mut stream) = configured().await;
    stream.send("2", "n2", &[]);
    client.proposal().await.reply.send(Err("no room".to_owned())).unwrap();
    let answer = stream.request().await;
    assert_eq!(answer.error.as_deref(), Some("no room"));
    assert_eq!(SeenRequest { error: None, ..answer }, ack("1", "n2"));
    // It was not put into force, so the same content is a change again.
    stream.send("3", "n3", &[]);
    client.accept().await;
    assert_eq!(stream.request().await, ack("3", "n3"));
}

#[tokio::test]
async fn another_type_is_rejected_and_a_nonce_may_come_twice() {
    let (_server, mut client, mut stream) = configured().await;
    stream.send_typed("type.googleapis.com/envoy.config.cluster.v3.Cluster", "2", "n2", &[vec![]]);
    let answer = stream.request().await;
    assert!(answer.error.clone().unwrap().contains("envoy.config.cluster.v3.Cluster"), "{answer:?}");
    assert_eq!(SeenRequest { error: None, ..answer }, ack("1", "n2"));
    stream.send("2", "n2", &[]);
    client.accept().await;
    assert_eq!(stream.request().await, ack("2", "n2"));
}

#[tokio::test]
async fn a_new_stream_begins_without_a_version_and_brings_the_whole_state() {
    let (mut server, mut client, stream) = configured().await;
    drop(stream);
    let mut stream = timeout(TEST_TIMEOUT, server.stream()).await.unwrap();
    assert_eq!(stream.request().await, ack("", ""));
    // The server was restarted, and its version is that of before.
    stream.send("1", "n1", &[]);
    assert!(client.accept().await.domains().is_empty());
    assert_eq!(stream.request().await, ack("1", "n1"));
    assert!(client.counters.status().failures >= 1);
}

#[tokio::test]
async fn what_is_too_large_or_garbage_ends_the_stream_and_changes_nothing() {
    let (mut server, mut client, mut stream) = configured().await;
    let hundred_mib = (100_u32 << 20).to_be_bytes();
    let too_large = [&[0][..], &hundred_mib, &[10, 1]].concat();
    for (bytes, problem) in [
        (too_large, "a message of 104857600 bytes, and at most 4194304"),
        (vec![9, 9, 9, 9, 9, 9], "bytes that are not a gRPC message"),
        (vec![1, 0, 0, 0, 0], "a compressed message"),
        (vec![0, 0, 0, 0, 2, 0xff, 0xff], "a message that is not a DiscoveryResponse"),
    ] {
        stream.send_bytes(Bytes::from(bytes));
        assert!(timeout(TEST_TIMEOUT, stream.is_ended()).await.unwrap());
        stream = timeout(TEST_TIMEOUT, server.stream()).await.unwrap();
        assert_eq!(stream.request().await, ack("", ""));
        let said = client.counters.status().problem.unwrap_or_default();
        assert!(said.contains(problem), "{said}");
    }
    assert!(client.proposals.try_recv().is_err());
    assert_eq!(client.counters.status().version, "1");
}

#[tokio::test]
async fn messages_up_to_the_bound_are_accepted() {
    let mut server = Server::start().await;
    let mut client = Client::with(&server, |settings| settings.max_message_bytes = 300);
    let mut stream = server.stream().await;
    stream.request().await;
    let many: Vec<_> = (0..20).map(|_| Rule { below: vec![], ..Rule::per_minute("key", 1) }).collect();
    stream.send("1", "n1", &[config("a", &many)]);
    assert!(timeout(TEST_TIMEOUT, stream.is_ended()).await.unwrap());
    let mut stream = timeout(TEST_TIMEOUT, server.stream()).await.unwrap();
    stream.request().await;
    stream.send("2", "n2", &[config("a", &many[..1])]);
    client.accept().await;
    assert_eq!(stream.request().await, ack("2", "n2"));
}

#[tokio::test]
async fn silence_is_reported_after_a_minute() {
    let mut server = Server::start().await;
    let client = Client::start(&server);
    let mut stream = server.stream().await;
    stream.request().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(client.counters.status().silences, 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.counters.status().silences, 1);
    assert!(!client.counters.is_configured());
}

#[tokio::test]
async fn a_server_that_is_away_is_called_again() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = closed.local_addr().unwrap();
    drop(closed);
    let (sender, _proposals) = mpsc::channel(1);
    let settings = XdsSettings::new(XdsServer::parse(&nowhere.to_string()).unwrap(), "n");
    let client = XdsClient::new(settings, sender, 1);
    let counters = client.counters();
    tokio::spawn(client.run());
    let failed_twice = async {
        while counters.status().failures < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TEST_TIMEOUT, failed_twice).await.unwrap();
    let problem = counters.status().problem.unwrap();
    assert!(problem.contains(&format!("cannot connect to {nowhere}")), "{problem}");
}
