//! `/json`: the same requests and responses as JSON.

use serde_json::{Value, json};

use crate::support::{Service, of_policy};

fn service() -> Service {
    of_policy("limits: [{name: per-user, descriptor: [user], bucket: 2/minute}]")
}

fn post(service: &Service, body: &str) -> (u16, Value) {
    let (status, reply) = pollster::block_on(service.rls.json(body.as_bytes()));
    (status.as_u16(), serde_json::from_slice(&reply).expect("answers are JSON"))
}

#[test]
fn json_responses_equal_protobuf_responses() {
    let service = service();
    let question = json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]});
    let of_text = post(&service, &question.to_string());
    assert_eq!(of_text.0, 200);
    let mut expected = service.ask(&question);
    assert_eq!(expected["statuses"][0].get("limitRemaining"), None);
    expected["statuses"][0]["limitRemaining"] = 1.into();
    expected["statuses"][0]["durationUntilReset"] = "30s".into();
    assert_eq!(of_text.1, expected);
    let (status, refused) = post(&service, &question.to_string());
    assert_eq!((status, &refused["overallCode"]), (429, &json!("OVER_LIMIT")));
}

#[test]
fn names_and_numbers_are_accepted_in_every_notation_of_protobuf() {
    let service = service();
    for question in [
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}],"hitsAddend":"0"}]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}],"hits_addend":0,"is_negative_hits":false}],"hits_addend":7}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"x"}],"limit":{"requestsPerUnit":1,"unit":"HOUR"}}],"hitsAddend":null}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"y"}],"limit":{"requests_per_unit":1,"unit":3}}]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"z"}],"limit":{"requestsPerUnit":1.0,"unit":3.0}}],"hitsAddend":1e0}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"z"}],"hitsAddend":"2.0"}]}"#,
    ] {
        assert_eq!(post(&service, question).0, 200, "{question}");
    }
}

#[test]
fn invalid_requests_get_a_400_with_the_reason() {
    let service = service();
    for (question, why) in [
        ("", "EOF"),
        ("[]", "an object"),
        ("{}", "rate limit domain must not be empty"),
        (r#"{"domain":"d"}"#, "rate limit descriptor list must not be empty"),
        (r#"{"domain":"d","descriptors":[{}]}"#, "descriptor 0 has no entries"),
        (r#"{"domain":"d","descriptors":[{"entries":[{"value":"x"}]}]}"#, "has no key"),
        (r#"{"domain":"d","descriptor":[]}"#, "unknown field"),
        (r#"{"domain":"d","hitsAddend":-1}"#, "a whole number"),
        (r#"{"domain":"d","hitsAddend":1.5}"#, "a whole number"),
        (r#"{"domain":"d","hitsAddend":1e10}"#, "a whole number"),
        (
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"unit":"FORTNIGHT"}}]}"#,
            "a unit is",
        ),
        (
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"requestsPerUnit":1}}]}"#,
            "has no unit",
        ),
    ] {
        let (status, reply) = post(&service, question);
        assert_eq!(status, 400, "{question}");
        assert!(reply["error"].as_str().unwrap().contains(why), "{question}: {reply}");
    }
}
