//! Forward auth: the request that is decided, and the response to the proxy.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate_http::{ShuttingDown, WaitingRoom};
use tollgate_server::Access;

use crate::support::{Answer, Subject, subject, watched};

const POLICY: &str = "
client: {trusted_proxies: [10.0.0.0/8]}
limits:
  - {name: search, endpoint: /search, method: GET, by: ip, bucket: 1/minute}
  - {name: hosted, host: shop.test, by: global, bucket: 3/minute}
deny: [{ip: 192.0.2.0/24}]
";
const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Sends a request to forward auth; `rest` is the rest of the path, with the query.
fn auth(subject: &Subject, rest: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::get(format!("/v1/auth{rest}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    subject.send_from(request.body(Full::<Bytes>::default()).unwrap(), PROXY)
}

#[test]
fn an_admitted_request_gets_every_header_and_no_body() {
    let subject = subject(POLICY);
    let answer = auth(&subject, "", &[("X-Original-URI", "/search?q=x"), ("X-Forwarded-For", "203.0.113.9")]);
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    for (name, value) in [
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("ratelimit-policy", "\"search\";q=1;w=60"),
        ("ratelimit", "\"search\";r=0;t=60"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.header("tollgate-decision").map(str::len), Some(16));
    assert_eq!(answer.header("retry-after"), None);
}

#[test]
fn a_refused_request_gets_a_problem_and_the_status_that_was_asked_for() {
    let headers = [("X-Original-URI", "/search"), ("X-Original-Method", "GET"), ("X-Real-IP", "203.0.113.9")];
    for (query, status) in [
        ("", 429),
        ("?deny=403", 403),
        ("?headers=original&deny=418", 418),
        ("?", 429),
        ("/original", 429),
        ("/original/403", 403),
        ("/original/418?deny=403&headers=forwarded", 418),
    ] {
        let subject = subject(POLICY);
        assert_eq!(auth(&subject, query, &headers).status, 200);
        let answer = auth(&subject, query, &headers);
        assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (status, Some("60")), "{query}");
        assert!(answer.problem().contains("limit `search` allows 1 per minute"), "{}", answer.text());
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(answer.header("tollgate-decision").map(str::len), Some(16));
    }
}

#[test]
fn a_deny_listed_client_gets_403_whatever_the_refusal_status_is() {
    let answer = auth(&subject(POLICY), "?deny=401", &[("X-Original-URI", "/"), ("X-Real-IP", "192.0.2.7")]);
    assert_eq!(answer.status, 403);
    answer.problem();
}

/// Checks whether added headers can make a second request count as another one than the first: `GET
/// /search` by 203.0.113.9.
#[track_caller]
fn check_spoof(query: &str, own: &[(&str, &str)], added: &[(&str, &str)], expected: u16) {
    let subject = subject(POLICY);
    let own = [&[("X-Forwarded-For", "203.0.113.9")], own].concat();
    assert_eq!(auth(&subject, query, &own).status, 200, "{own:?}");
    let all = [&own[..], added].concat();
    let answer = auth(&subject, query, &all);
    assert_eq!(answer.status, expected, "{query} {all:?}: {}", answer.text());
    if expected == 400 {
        answer.problem();
    }
}

const NGINX: &[(&str, &str)] = &[("X-Original-URI", "/search"), ("X-Original-Method", "GET")];
const CADDY: &[(&str, &str)] = &[("X-Forwarded-Uri", "/search"), ("X-Forwarded-Method", "GET")];

#[test]
fn only_the_selected_family_counts() {
    check_spoof(
        "?headers=original",
        NGINX,
        &[("X-Forwarded-Uri", "/other"), ("X-Forwarded-Method", "PUT")],
        429,
    );
    check_spoof(
        "?headers=forwarded",
        CADDY,
        &[("X-Original-URI", "/other"), ("X-Original-Method", "PUT")],
        429,
    );
    check_spoof("?headers=forwarded", CADDY, &[("X-Original-URL", "http://x/other")], 429);
}

#[test]
fn only_the_family_of_the_path_counts() {
    let (original, forwarded) = (("X-Original-URI", "/other"), ("X-Forwarded-Uri", "/other"));
    for query in ["", "?headers=forwarded", "?headers=original", "?deny=200", "?x=1&deny=499"] {
        check_spoof(&format!("/original{query}"), NGINX, &[forwarded], 429);
        check_spoof(&format!("/forwarded{query}"), CADDY, &[original], 429);
        check_spoof(&format!("/forwarded{query}"), CADDY, &[("X-Original-URL", "http://x/other")], 429);
        check_spoof(&format!("/forwarded/403{query}"), CADDY, &[original], 403);
    }
}

/// Checks a proxy that appends its client's query, as Caddy does: the same query is in the forward auth
/// request and in the original request.
#[track_caller]
fn check_appended(query: &str, added: &[(&str, &str)], expected: u16) {
    let subject = subject(POLICY);
    let target = format!("/search?{query}");
    let own =
        [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Uri", &target), ("X-Forwarded-Method", "GET")];
    assert_eq!(auth(&subject, &format!("?{query}"), &own).status, 200, "{query}");
    let answer = auth(&subject, &format!("?{query}"), &[&own[..], added].concat());
    assert_eq!(answer.status, expected, "{query} {added:?}: {}", answer.text());
}

#[test]
fn the_query_of_a_client_selects_neither_family_nor_status() {
    for query in
        ["q=x", "deny=200", "deny=404", "headers=original", "deny=403&headers=original", "header=x", "&&"]
    {
        check_appended(query, &[], 429);
        check_appended(query, &[("X-Original-URI", "/other")], 400);
        check_appended(query, &[("X-Original-URI", "/other"), ("X-Original-Method", "GET")], 400);
        check_appended(query, &[("X-Original-URL", "http://x/other")], 400);
    }
}

#[test]
fn ambiguous_credentials_are_refused_with_the_status_of_the_path() {
    let policy = "identify: {ambiguous: refuse}\nlimits: [{name: keys, by: api_key, bucket: 9/hour}]";
    let subject = subject(policy);
    let headers = [("X-Original-URI", "/"), ("X-API-Key", "a"), ("X-API-Key", "b")];
    for (rest, status) in [("/original", 400), ("/original/403", 403), ("?headers=original", 400)] {
        let answer = auth(&subject, rest, &headers);
        assert_eq!(answer.status, status, "{rest}");
        assert!(answer.problem().contains("several different values for `api_key`"), "{}", answer.text());
    }
    assert_eq!(auth(&subject, "/original", &headers[..2]).status, 200);
}

#[test]
fn two_keys_and_a_fresh_token_for_each_request_share_one_allowance() {
    let subject = subject("limits: [{by: api_key, bucket: 5/hour}]");
    let admitted = (0..20).filter(|turn| {
        let (key, token) = (format!("k{turn}"), format!("Bearer {turn}"));
        let headers =
            [("X-Original-URI", "/"), ("X-API-Key", "own"), ("X-API-Key", &key), ("Authorization", &token)];
        auth(&subject, "/original", &headers).status == 200
    });
    assert_eq!(admitted.count(), 5);
}

#[test]
fn a_header_that_resembles_a_credential_makes_it_ambiguous() {
    let subject = subject("limits: [{by: 'header:x-device', missing: skip, bucket: 5/hour}]");
    let admitted = |name: &str| {
        let turns = 0..20;
        let device = |turn: i32| {
            [("X-Original-URI", "/".to_owned()), (name, "own".to_owned()), ("X_Device", turn.to_string())]
        };
        turns
            .filter(|turn| {
                let lines = device(*turn);
                let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
                auth(&subject, "/original", &lines).status == 200
            })
            .count()
    };
    assert_eq!(admitted("X-Device"), 5);
    assert_eq!(admitted("X-Other"), 0, "counted by the same address");
}

#[test]
fn families_that_disagree_are_rejected() {
    for (own, added) in [
        (NGINX, ("X-Forwarded-Uri", "/other")),
        (NGINX, ("X-Forwarded-Uri", "/search")),
        (NGINX, ("X-Forwarded-Method", "PUT")),
        (CADDY, ("X-Original-URI", "/other")),
        (CADDY, ("X-Original-URL", "https://x/other")),
        (CADDY, ("X-Original-Method", "PUT")),
    ] {
        check_spoof("", own, &[added], 400);
    }
    check_spoof(
        "",
        CADDY,
        &[("X-Original-URI", "/search"), ("X-Original-Method", "GET"), ("X-Original-Host", "x")],
        400,
    );
    check_spoof("", CADDY, &[("X-Original-URI", "/search"), ("X-Original-Method", "GET")], 429);
    check_spoof("", NGINX, &[("X-Forwarded-Host", "other.test")], 429);
}

#[test]
fn conflicting_headers_of_one_family_are_rejected() {
    check_spoof("?headers=original", NGINX, &[("X-Original-URI", "/other")], 400);
    check_spoof("?headers=original", NGINX, &[("X-Original-URL", "http://shop.test/other")], 400);
    check_spoof("?headers=original", NGINX, &[("X-Original-URL", "http://a.test/search")], 429);
    check_spoof("?headers=original", NGINX, &[("X-Original-Method", "PUT")], 400);
    check_spoof("?headers=forwarded", CADDY, &[("X-Forwarded-Uri", "/other")], 400);
}

#[test]
fn another_host_adds_limits_and_removes_none() {
    let subject = subject(POLICY);
    let ask = |headers: &[(&str, &str)]| {
        let headers = [&[("X-Original-URI", "/"), ("Host", "shop.test")], headers].concat();
        auth(&subject, "?headers=original", &headers).status.as_u16()
    };
    assert_eq!(ask(&[]), 200);
    assert_eq!(ask(&[("X-Original-Host", "other.test")]), 200);
    assert_eq!(ask(&[("X-Original-Host", "other.test:80")]), 200);
    assert_eq!(ask(&[("X-Original-Host", "other.test")]), 429);
}

#[test]
fn the_url_names_host_path_and_query() {
    let subject =
        subject("limits: [{name: q, host: shop.test, endpoint: /find, by: 'query:q', bucket: 5/s}]");
    for url in
        ["https://shop.test/find?q=x", "http://u:p@shop.test:8443/find?q=x#top", "HTTPS://SHOP.TEST/find?q=x"]
    {
        let answer = auth(&subject, "", &[("X-Original-URL", url)]);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("5"), "{url}");
    }
    assert_eq!(
        auth(&subject, "", &[("X-Original-URL", "https://shop.test?q=x")]).header("x-ratelimit-limit"),
        None
    );
}

#[track_caller]
fn check_client(headers: &[(&str, &str)], header: &str, expected: &str) {
    let policy = format!(
        "client: {{trusted_proxies: [10.0.0.0/8], header: {header}}}\nlimits: [{{by: ip, bucket: 1/minute}}]"
    );
    let subject = subject(&policy);
    let key = format!(r#"{{"key":"{expected}"}}"#);
    let headers = [&[("X-Original-URI", "/")], headers].concat();
    assert_eq!(auth(&subject, "", &headers).status, 200);
    let view = subject.ask("/v1/limits/everything-by-ip/peek", &key);
    assert_eq!(view["limits"][0]["remaining"], 0, "{headers:?} is not {expected}");
}

#[test]
fn the_client_is_the_first_untrusted_hop() {
    let xff = "x-forwarded-for";
    check_client(&[("X-Forwarded-For", "203.0.113.9")], xff, "203.0.113.9");
    check_client(&[("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.7")], xff, "203.0.113.9");
    check_client(&[("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "203.0.113.9")], xff, "203.0.113.9");
    check_client(&[("X-Forwarded-For", "203.0.113.9"), ("X-Real-IP", "6.6.6.6")], xff, "203.0.113.9");
    check_client(&[("X-Forwarded-For", "nonsense"), ("X-Real-IP", "6.6.6.6")], xff, "10.0.0.1");
    check_client(&[("X-Real-IP", "203.0.113.9")], xff, "203.0.113.9");
    check_client(&[("X-Real-IP", "nonsense")], xff, "10.0.0.1");
    check_client(&[], xff, "10.0.0.1");
    check_client(
        &[("Forwarded", "for=203.0.113.9"), ("X-Forwarded-For", "6.6.6.6")],
        "forwarded",
        "203.0.113.9",
    );
    check_client(&[("X-Forwarded-For", "6.6.6.6")], "none", "10.0.0.1");
}

#[test]
fn a_proxy_outside_the_policy_is_trusted_too() {
    let subject = subject("limits: [{by: ip, bucket: 1/minute}]");
    let ask = |client: &str| {
        auth(&subject, "", &[("X-Original-URI", "/"), ("X-Forwarded-For", client)]).status.as_u16()
    };
    assert_eq!([ask("203.0.113.9"), ask("203.0.113.9"), ask("203.0.113.10")], [200, 429, 200]);
}

#[test]
fn the_policy_sees_only_the_headers_of_the_client() {
    let policy = |name: &str| format!("limits: [{{by: 'header:{name}', missing: refuse, bucket: 9/s}}]");
    for (name, seen) in [
        ("x-device", true),
        ("x-original-uri", false),
        ("x-original-anything", false),
        ("x-forwarded-uri", false),
        ("x-forwarded-method", false),
        ("tollgate-token", false),
    ] {
        let subject = subject(&policy(name));
        let own = [("X-Original-URI", "/"), ("X-Original-Method", "GET"), ("Tollgate-Token", "t")];
        let mut headers = own.to_vec();
        if !own.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            headers.push((name, "/"));
        }
        let answer = auth(&subject, "?headers=original", &headers);
        assert_eq!(answer.status == 200, seen, "{name}: {}", answer.text());
    }
}

#[test]
fn slots_are_read_and_not_acquired() {
    let subject = subject("limits: [{name: jobs, by: global, slots: 1}]");
    for _ in 0..3 {
        let answer = auth(&subject, "", &[("X-Original-URI", "/")]);
        assert_eq!(answer.status, 200);
        assert!(answer.header("ratelimit").is_some_and(|it| it.starts_with("\"jobs\";r=1")), "{answer:?}");
    }
}

#[test]
fn a_charge_of_forward_auth_can_be_settled() {
    let subject = subject("limits: [{by: global, bucket: 100/hour}]");
    let answer = auth(&subject, "", &[("X-Original-URI", "/")]);
    let id = answer.header("tollgate-decision").unwrap();
    subject.ask("/v1/settle", &format!(r#"{{"id":"{id}","cost":40}}"#));
    assert_eq!(auth(&subject, "", &[("X-Original-URI", "/")]).header("x-ratelimit-remaining"), Some("59"));
}

#[test]
fn every_described_method_is_accepted() {
    let subject = subject(POLICY);
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let request = Request::builder().method(method).uri("/v1/auth").header("X-Original-URI", "/");
        assert_eq!(subject.send(request.body(Full::default()).unwrap()).status, 200, "{method}");
    }
    let query = Request::builder().method("QUERY").uri("/v1/auth").header("X-Original-URI", "/");
    assert_eq!(subject.send(query.body(Full::default()).unwrap()).status, 405);
    let put = Request::put("/v1/auth").header("X-Forwarded-Uri", "/search").body(Full::default()).unwrap();
    assert_eq!(
        subject.send(put).header("x-ratelimit-limit"),
        None,
        "a proxy that keeps the method may omit it"
    );
}

#[track_caller]
fn check_wrong(query: &str, headers: &[(&str, &str)], detail: &str) {
    let answer = auth(&subject(POLICY), query, headers);
    assert_eq!(answer.status, 400, "{query} {headers:?}");
    assert!(answer.problem().contains(detail), "{query} {headers:?}: {}", answer.text());
}

#[test]
fn a_misconfigured_proxy_gets_a_helpful_error() {
    check_wrong("", &[], "`proxy_set_header X-Original-URI $request_uri;`");
    check_wrong("", &[("X-Original-Method", "GET")], "`proxy_set_header X-Original-URI $request_uri;`");
    check_wrong("", &[("X-Original-URI", "")], "`proxy_set_header X-Original-URI $request_uri;`");
    check_wrong("?headers=forwarded", NGINX, "`X-Forwarded-Uri`");
    check_wrong("?headers=original", CADDY, "`proxy_set_header X-Original-URI");
    check_wrong("", &[("X-Original-URI", "search")], "must be a path such as");
    check_wrong("", &[("X-Original-URI", "/"), ("X-Original-Method", "GET /")], "not a valid method");
    check_wrong("?header=original", NGINX, "unknown parameter `header`; did you mean `headers`?");
    check_wrong("?headers=nginx", NGINX, "`headers` must be `original`");
    check_wrong("?headers=original&headers=forwarded", NGINX, "given twice");
    for status in ["", "200", "500", "4030", "+403", "x"] {
        check_wrong(&format!("?deny={status}"), NGINX, "`deny` must be a status from 400 to 499");
    }
    for status in ["200", "500", "4030", "x", "+403"] {
        check_wrong(&format!("/original/{status}"), NGINX, "must end in a status from 400 to 499");
    }
    check_wrong("/forwarded", NGINX, "`X-Forwarded-Uri`");
    check_wrong("", &[("X-Original-URI", "/a"), ("X-Forwarded-Uri", "/b")], "`/v1/auth/original`");
    for rest in ["/", "/nginx", "/original/", "/original/403/", "/original/403/x", "/nginx/403"] {
        assert_eq!(auth(&subject(POLICY), rest, NGINX).status, 404, "{rest}");
    }
}

/// The first request is answered immediately, and two wait for 30 s and 60 s.
const QUEUE: &str =
    "limits: [{name: queue, by: global, algorithm: leaky-queue, rate: 2/minute, queue: {length: 2}}]";

/// Sends a request to forward auth, whose answer may have to wait.
fn waiting(subject: &Subject) -> Pin<Box<impl Future<Output = Response<Full<Bytes>>> + use<>>> {
    waiting_for(subject, "/")
}

fn waiting_for(
    subject: &Subject,
    path: &str,
) -> Pin<Box<impl Future<Output = Response<Full<Bytes>>> + use<>>> {
    let (api, request) = (subject.api.clone(), Request::get("/v1/auth/original"));
    let request = request.header("X-Original-URI", path).body(Full::<Bytes>::default()).unwrap();
    Box::pin(async move { api.answer(request, PROXY).await })
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_answer_about_a_request_in_a_queue_is_held_until_it_may_start() {
    let subject = subject(QUEUE);
    let (over, slept) = (Arc::new(AtomicU8::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (ends, sleeps) = (Arc::clone(&over), Arc::clone(&slept));
    let room = WaitingRoom::new(2, |_| async {}).sleeping(move |wait| {
        sleeps.lock().unwrap().push(wait.max().as_secs());
        let ends = Arc::clone(&ends);
        std::future::poll_fn(move |_| match ends.load(Ordering::Relaxed) {
            0 => Poll::Pending,
            1 => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(ShuttingDown)),
        })
    });
    drop(subject.api.clone().with_waiting_room(room.clone()));
    let left = || api_left(&subject);
    assert_eq!(auth(&subject, "/original", &[("X-Original-URI", "/")]).status, 200);
    let mut held = [waiting(&subject), waiting(&subject)];
    assert!(held.iter_mut().all(|it| poll(it.as_mut()).is_pending()));
    assert_eq!((slept.lock().unwrap().clone(), room.waiting(), left()), (vec![30, 60], 2, 0));
    let full = auth(&subject, "/original/403", &[("X-Original-URI", "/")]);
    assert_eq!((full.status.as_u16(), full.header("retry-after")), (403, Some("30")));

    // The client of the proxy leaves.
    let [mut first, second] = held;
    drop(second);
    assert_eq!((room.waiting(), left()), (1, 1));
    over.store(1, Ordering::Relaxed);
    let Poll::Ready(answer) = poll(first.as_mut()) else { panic!("it has waited") };
    assert_eq!((answer.status().as_u16(), room.waiting(), left()), (200, 0, 1));
    let id = answer.headers()["tollgate-decision"].to_str().unwrap();
    assert_eq!(subject.post("/v1/settle", format!(r#"{{"id":"{id}","cost":1}}"#)).status, 200);

    over.store(2, Ordering::Relaxed);
    let Poll::Ready(answer) = poll(waiting(&subject).as_mut()) else { panic!("the server stops") };
    assert_eq!((answer.status().as_u16(), left()), (503, 1));
    assert!(answer.headers().contains_key("tollgate-decision") && answer.headers()["retry-after"] == "1");
}

#[test]
fn a_held_answer_of_a_less_important_request_yields_its_place() {
    let queue = QUEUE.replace("length: 2", "length: 9");
    let policy = format!("priorities: [{{name: critical, endpoint: /pay}}, {{name: normal}}]\n{queue}");
    let (subject, _) = watched(&policy, Access::open());
    let room = WaitingRoom::new(1, |_| std::future::pending());
    drop(subject.api.clone().with_waiting_room(room.clone()));
    assert_eq!(auth(&subject, "/original", &[("X-Original-URI", "/")]).status, 200);
    let mut normal = waiting(&subject);
    assert!(poll(normal.as_mut()).is_pending());
    let mut critical = waiting_for(&subject, "/pay");
    assert!(poll(critical.as_mut()).is_pending(), "it waits, although the room is full");
    let Poll::Ready(answer) = poll(normal.as_mut()) else { panic!("it has lost its place") };
    assert_eq!((answer.status().as_u16(), room.waiting(), room.displaced()), (429, 1, 1));
    let id = answer.headers()["tollgate-decision"].to_str().unwrap();
    let explained = subject.get(&format!("/v1/decisions/{id}")).json();
    let summary = explained["summary"].as_str().unwrap();
    assert!(summary.contains("a more important request took its place"), "{explained}");
    assert_eq!(auth(&subject, "/original", &[("X-Original-URI", "/")]).status, 429);
    assert_eq!((room.refused(), room.waiting()), (1, 1));
    drop(critical);
    assert_eq!(api_left(&subject), 9, "all but the first are refunded");
}

/// The remaining places of the only limit.
fn api_left(subject: &Subject) -> u64 {
    let limiter = subject.limiter.load();
    let decision = limiter.check(&tollgate::Call::new("GET", "/").cost(0));
    decision.limits().next().unwrap().outcome().remaining
}

#[test]
fn an_answer_that_cannot_be_held_is_a_refusal_that_charges_nothing() {
    for room in [None, Some(WaitingRoom::new(0, |_| async {}))] {
        let subject = subject(QUEUE);
        if let Some(room) = &room {
            drop(subject.api.clone().with_waiting_room(room.clone()));
        }
        let headers = [("X-Original-URI", "/")];
        assert_eq!(auth(&subject, "/original", &headers).status, 200);
        for _ in 0..3 {
            let answer = auth(&subject, "/original", &headers);
            assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, Some("30")));
            let reason = "the waiting room of this server is full";
            assert!(answer.problem().contains(reason), "{answer:?}");
            assert_eq!(api_left(&subject), 2);
        }
        assert_eq!(room.map_or(3, |it| it.refused()), 3);
    }
}
