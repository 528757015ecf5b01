//! The `gateway` section: its settings and its error messages.

use std::time::Duration;

use tollgate::{Limiter, Policy};
use tollgate_gateway::{Forwarding, Gateway, GatewaySettings, Http1Server, OverrideHeaders, Target};

use crate::support::{Certificate, settings};

#[test]
fn every_setting_is_read() {
    let read = settings(
        "upstream: [\"http://127.0.0.1:3000\", \"h2c://[::1]:50051\"], tls: {certificate: c.pem, key: k.pem}, \
         upstream_ca: ca.pem, proxy_protocol: true, forwarded: both, override_headers: [X-Method-Override], paths: refuse, workers: 3, keep_alive: 7, http1: hyper, \
         timeouts: {connect: 1s, headers: 2s, idle: 3s, total: 4s, client_headers: 5s, client_idle: 6s, drain: 7s}, \
         caps: {header_bytes: 8KiB, headers: 50, body: 1MB, connections: 10, streams: 11, tarpit: 12, waiting: 14, detached: 13}, \
         eject: {after: 8, for: 9s}",
    )
    .unwrap();
    let Target::Upstreams(origins) = &read.target else { panic!("{read:?}") };
    assert_eq!(
        origins.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["http://127.0.0.1:3000", "h2c://[::1]:50051"]
    );
    assert_eq!(read.tls, Some(("c.pem".into(), "k.pem".into())));
    assert_eq!(read.upstream_ca, Some("ca.pem".into()));
    assert!(read.proxy_protocol);
    assert_eq!(read.http1, Http1Server::Hyper);
    assert_eq!(read.override_headers, OverrideHeaders::KeptOnly(vec!["x-method-override".into()]));
    assert_eq!((read.forwarding, read.workers, read.keep), (Forwarding::Both, Some(3), 7));
    let seconds = [
        read.connect,
        read.answer,
        read.still,
        read.total.unwrap(),
        read.caps.head,
        read.caps.idle,
        read.drain,
        read.eject_for,
    ];
    assert_eq!(seconds.map(|it| it.as_secs()), [1, 2, 3, 4, 5, 6, 7, 9]);
    assert_eq!(read.caps.stalled, Duration::from_secs(3));
    assert_eq!((read.caps.header_bytes, read.caps.headers, read.body), (8192, 50, Some(1 << 20)));
    assert_eq!((read.detached, read.waiting), (13, 14));
    assert_eq!((read.caps.connections, read.caps.streams, read.tarpit, read.eject_after), (10, 11, 12, 8));

    assert_eq!(settings("").unwrap(), GatewaySettings::default());
    let off = settings("upstream: demo, timeouts: {total: off}, caps: {body: off}").unwrap();
    assert_eq!((off.target, off.total, off.body), (Target::Demo, None, None));
}

#[test]
fn mistakes_are_reported_with_a_correction() {
    for (section, message) in [
        ("upstreams: x", "upstream"),
        ("upstream: []", "names no service"),
        ("upstream: 127.0.0.1", "is not an upstream"),
        ("upstream: \"http://a/path\"", "requests keep their own"),
        ("tls: {certificate: c.pem}", "`tls` has no `key`"),
        ("tls: {cert: c.pem, key: k.pem}", "certificate"),
        ("forwarded: yes-please", "forwarded"),
        ("override_headers: [X-Api-Key]", "is not removed in any case"),
        ("override_headers: drop", "`remove`, `keep`"),
        ("workers: 0", "workers"),
        ("timeouts: {connect: soon}", "connect"),
        ("timeouts: {read: 1s}", "headers"),
        ("timeouts: {idle: 0s}", "idle"),
        ("caps: {header_bytes: 10}", "header_bytes"),
        ("caps: {body: lots}", "body"),
        ("caps: {tarpit: 1000001}", "tarpit"),
        ("caps: {waiting: 1000001}", "waiting"),
        ("caps: {queue: 5}", "waiting"),
        ("caps: {abandoned: 5}", "detached"),
        ("eject: {max_fails: 3}", "after"),
        ("eject: {after: 0}", "after"),
    ] {
        let said = settings(section).unwrap_err();
        assert!(said.contains(message), "{section}: {said}");
    }
}

#[test]
fn invalid_certificates_are_reported_before_serving() {
    let (one, other) = (Certificate::of("localhost"), Certificate::of("localhost"));
    let (certificate, key) = (one.path(), one.key_path());
    let line =
        |certificate: &str, key: &str| format!("tls: {{certificate: \"{certificate}\", key: \"{key}\"}}");
    let absent = format!("{certificate}.absent");
    for (lines, message, file) in [
        (line(&absent, &key), "cannot read", &absent),
        (line(&certificate, &absent), "cannot read", &absent),
        (line(&key, &key), "cannot serve TLS with", &key),
        (line(&certificate, &certificate), "cannot serve TLS with", &certificate),
        (line(&certificate, &other.key_path()), "cannot serve TLS with", &certificate),
        (format!("upstream_ca: \"{absent}\""), "cannot read", &absent),
        (format!("upstream_ca: \"{key}\""), "to check upstreams", &key),
    ] {
        let settings = settings(&format!("upstream: \"http://127.0.0.1:1\", {lines}")).unwrap();
        let limiter = Limiter::new(Policy::parse("limits: []").unwrap());
        let said = Gateway::new(settings, limiter.into(), None).err().unwrap().to_string();
        assert!(said.contains(message) && said.contains(file.as_str()), "{lines}: {said}");
    }
}
