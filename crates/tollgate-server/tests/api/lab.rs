//! The Lab: results and rejected requests.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::support::{PEER, subject};

const POLICY: &str = "limits: [{name: api, by: global, bucket: 5/minute}]";
const LAB: &str = "/v1/lab/simulate";

#[test]
fn the_burst_at_the_edge_of_a_fixed_window_is_reported() {
    let response =
        subject(POLICY).ask(LAB, r#"{"algorithms":["fixed-window","sliding-log"],"rate":"10\/minute"}"#);
    let [fixed, log] = response["algorithms"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!((&fixed["algorithm"], &fixed["most_in_a_window"]), (&json!("fixed-window"), &json!(20)));
    assert!(fixed["words"].as_str().unwrap().contains("twice the limit"), "{fixed}");
    assert_eq!(log["most_in_a_window"], 10);
    assert_eq!(response["limit"], 10);
    for series in ["offered", "admitted", "window"] {
        assert_eq!(fixed["series"][series].as_array().unwrap().len(), 240, "{series}");
    }
}

#[test]
fn results_depend_on_the_seed_only() {
    let ask = |seed: u64| subject(POLICY).ask(LAB, &format!(r#"{{"traffic":"poisson","seed":{seed}}}"#));
    assert_eq!(ask(7)["algorithms"], ask(7)["algorithms"]);
    assert_ne!(ask(7)["algorithms"], ask(8)["algorithms"]);
}

#[test]
fn invalid_or_excessive_simulations_get_a_helpful_error() {
    let subject = subject(POLICY);
    for (body, status, expected) in [
        (r#"{"rate":"100000/second"}"#, 422, "take a lower rate"),
        (r#"{"rate":"10/minuet"}"#, 422, "did you mean `minute`?"),
        (r#"{"rate":"10/minute","duration":"soon"}"#, 422, "30s, 5m or 1h"),
        (r#"{"traffic":"tsunami"}"#, 422, "`steady`, `edge`"),
        (r#"{"algorithms":[]}"#, 422, "at least one"),
        (r#"{"algorithms":["leaky"]}"#, 422, "`fixed-window`"),
        (r#"{"duration":"100000d"}"#, 422, "below four years, not `100000d`"),
        (r#"{"duration":"99999999999999999999999999s"}"#, 422, "below four years"),
        (r#"{"duration":"0s"}"#, 422, "above zero"),
        (r#"{"duration":"h"}"#, 422, "30s, 5m or 1h"),
        (r#"{"duration":"30"}"#, 422, "30s, 5m or 1h"),
        (r#"{"clients":501}"#, 422, "1 to 500 here"),
        (r#"{"clients":0}"#, 422, "1 to 500 here"),
        (r#"{"nodes":17}"#, 422, "1 to 16"),
        (r#"{"store":"redis://127.0.0.1"}"#, 422, "`memory` and `shared`"),
        (r#"{"load":-1}"#, 422, "from 0.01 to 1000"),
        (r#"{"attempts":1000000}"#, 422, "1 to 100"),
        (r#"{"load":"much"}"#, 400, "line 1"),
        (r#"{"clients":-1}"#, 400, "line 1"),
        (r#"{"shape":"edge"}"#, 400, "unknown field `shape`"),
        ("[]", 400, "must be a JSON object"),
        ("", 400, "the body is empty"),
    ] {
        let answer = subject.post(LAB, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.problem().contains(expected), "{body}: {}", answer.text());
    }
    let long = format!(r#"{{"rate":"{}/minute"}}"#, "1".repeat(100));
    assert!(subject.post(LAB, long).problem().contains("at most 64 bytes"));
}

#[test]
fn endless_retries_are_cut_off() {
    let body = r#"{"traffic":"retry-storm","rate":"4000/minute","duration":"2m","load":1,"honours_retry_after":false,
                   "jitter":true,"attempts":100,"algorithms":["gcra"]}"#;
    let response = subject(POLICY).ask(LAB, body);
    assert_eq!(response["algorithms"][0]["offered"], 50_000);
    assert!(response["notes"][0].as_str().unwrap().starts_with("cut short"), "{}", response["notes"]);
}

#[test]
fn a_simulation_yields_and_a_third_one_is_rejected() {
    let subject = subject(POLICY);
    let ask = || {
        let body = r#"{"traffic":"steady","rate":"1000/minute","duration":"4m"}"#;
        let request = Request::post(LAB).body(Full::<Bytes>::from(body)).unwrap();
        Box::pin(subject.api.answer(request, PEER))
    };
    let (mut first, mut second) = (ask(), ask());
    assert!(pollster::block_on(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx)))).is_pending(), "it yields");
    assert!(pollster::block_on(poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx)))).is_pending());
    let third = pollster::block_on(ask());
    assert_eq!((third.status().as_u16(), &third.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(subject.get("/healthz").status, 200);
    // A dropped or finished simulation releases its permit.
    drop(first);
    assert_eq!(subject.post(LAB, "{}").status, 200);
    let second = pollster::block_on(async { second.await.into_body().collect().await.unwrap().to_bytes() });
    assert!(second.starts_with(b"{\"rate\":\"1000/minute\""));
    assert_eq!(subject.post(LAB, "{}").status, 200);
}

const OVERLOAD: &str = "/v1/lab/overload";

#[test]
fn protections_are_compared_in_an_overload() {
    let body =
        r#"{"overload":"step","protections":["none","adaptive"],"workers":8,"duration":"12s","seed":1}"#;
    let response = subject(POLICY).ask(OVERLOAD, body);
    let [none, adaptive] = response["protections"].as_array().unwrap().as_slice() else {
        panic!("{response}")
    };
    assert_eq!((&none["protection"], &adaptive["protection"]), (&json!("none"), &json!("adaptive")));
    assert!(none["goodput"].as_f64() < adaptive["goodput"].as_f64(), "{response}");
    assert_eq!(response["possible"].as_array().unwrap().len(), 120);
    assert_eq!(response, subject(POLICY).ask(OVERLOAD, body), "the same seed gives the same result");
}

#[test]
fn invalid_or_excessive_overloads_get_a_helpful_error() {
    let subject = subject(POLICY);
    for (body, status, expected) in [
        (r#"{"overload":"flood"}"#, 422, "`retry-storm-budget`"),
        (r#"{"protections":["hope"]}"#, 422, "`adaptive-classes`"),
        (r#"{"protections":[]}"#, 422, "name at least one"),
        (r#"{"workers":0}"#, 422, "1 to 10000 workers"),
        (r#"{"load":0}"#, 422, "from 1 to 100"),
        (r#"{"duration":"5s"}"#, 422, "10s to 1h"),
        (r#"{"service_time":"2s"}"#, 422, "1ms to 500ms"),
        (r#"{"service_time":"fast"}"#, 422, "not `fast`"),
        (r#"{"workers":1000}"#, 422, "take fewer workers"),
        (r#"{"worker":5}"#, 400, "unknown field `worker`"),
    ] {
        let answer = subject.post(OVERLOAD, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.problem().contains(expected), "{body}: {}", answer.text());
    }
}
