//! Invalid bytes cause a gRPC error and nothing else.

use serde_json::json;

use crate::support::{SHOULD_RATE_LIMIT, decode, encode, framed, of_file, of_policy, read};

const REQUEST: &str = "envoy.service.ratelimit.v3.RateLimitRequest";

#[test]
fn invalid_requests_are_refused() {
    let service = of_policy("limits: [{descriptor: [user], bucket: 2/minute}]");
    let user = json!({"entries": [{"key": "user", "value": "a"}]});
    let many = |count: usize| vec![json!({"key": "k", "value": "v"}); count];
    let mut no_unit = user.clone();
    no_unit["limit"] = json!({"requestsPerUnit": 1});
    for request in [
        json!({}),
        json!({"descriptors": [user]}),
        json!({"domain": "d"}),
        json!({"domain": "d", "descriptors": [{}]}),
        json!({"domain": "d", "descriptors": [{"entries": [{"value": "v"}]}]}),
        json!({"domain": "d", "descriptors": [{"entries": many(51)}]}),
        json!({"domain": "d", "descriptors": vec![user.clone(); 101]}),
        json!({"domain": "d", "descriptors": [no_unit]}),
        json!({"domain": "tollgate", "descriptors": [{"entries": [{"key": "colour", "value": "red"}]}]}),
    ] {
        let reply = service.call(SHOULD_RATE_LIMIT, &encode(REQUEST, &request));
        assert_eq!(reply, ("3".to_owned(), None), "{request}");
    }
    assert_eq!(service.ask(&json!({"domain": "d", "descriptors": [user]}))["overallCode"], "OK");
}

/// Encodes a request with one entry whose value is these bytes.
fn of_bytes(domain: &str, key: &str, value: &[u8]) -> Vec<u8> {
    let stand_in = "=".repeat(value.len());
    let entry = json!({"key": key, "value": stand_in});
    let mut message = encode(REQUEST, &json!({"domain": domain, "descriptors": [{"entries": [entry]}]}));
    let at = message.windows(value.len()).position(|it| it == stand_in.as_bytes()).unwrap();
    message[at..at + value.len()].copy_from_slice(value);
    message
}

#[test]
fn values_with_arbitrary_bytes_are_counted() {
    let native = of_policy("limits: [{descriptor: [user], bucket: 2/minute}, {by: ip, bucket: 2/minute}]");
    let files = of_file(
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}, detailed_metric: true}]",
    );
    let long = vec![b'v'; 900_000];
    let values: [&[u8]; 6] = [&long, b"\xff\xfe", b"a\xc3", b"\0", "é".as_bytes(), &[0x80; 9_000]];
    for value in values {
        for (service, domain, key) in [
            (&native, "d", "user"),
            (&files, "d", "user"),
            (&native, "tollgate", "path"),
            (&native, "tollgate", "method"),
            (&native, "tollgate", "ip"),
            (&native, "tollgate", "header:x-a"),
        ] {
            let ask = || {
                let (status, reply) = service.call(SHOULD_RATE_LIMIT, &of_bytes(domain, key, value));
                assert_eq!(status, "0", "{domain} {key} {:?}", &value[..2.min(value.len())]);
                decode("envoy.service.ratelimit.v3.RateLimitResponse", &reply.unwrap())["overallCode"].clone()
            };
            let codes = [ask(), ask(), ask()];
            assert_eq!(codes[2], "OVER_LIMIT", "{domain} {key}: {codes:?}");
        }
    }
}

#[test]
fn a_key_or_a_domain_with_invalid_utf8_is_refused() {
    let service = of_policy("limits: []");
    let mut message = of_bytes("<d>", "<k>", b"\xff");
    assert_eq!(service.call(SHOULD_RATE_LIMIT, &message).0, "0");
    let key = message.windows(3).position(|it| it == b"<k>").unwrap();
    message[key] = 0xff;
    assert_eq!(service.call(SHOULD_RATE_LIMIT, &message).0, "3");
    message[key] = b'<';
    let domain = message.windows(3).position(|it| it == b"<d>").unwrap();
    message[domain] = 0xff;
    assert_eq!(service.call(SHOULD_RATE_LIMIT, &message).0, "3");
}

#[test]
fn paths_without_a_leading_slash_match_limits_on_all_paths() {
    let service = of_policy("limits: [{endpoint: '/**', by: global, bucket: 2/minute}]");
    let path = |path: &str| {
        let entries = json!([{"key": "method", "value": "OPTIONS"}, {"key": "path", "value": path}]);
        service.codes(&json!({"domain": "tollgate", "descriptors": [{"entries": entries}]}))
    };
    assert_eq!(
        [path("*"), path("example.com:443"), path("")],
        ["OK: OK", "OK: OK", "OVER_LIMIT: OVER_LIMIT"]
    );
}

#[test]
fn messages_beyond_a_mebibyte_are_not_buffered() {
    let service = of_policy("limits: []");
    let (status, _) = read(service.send(SHOULD_RATE_LIMIT, framed(&vec![0; 1024 * 1024 + 1])));
    assert_eq!(status, "8");
    let mut lie = framed(&[]);
    lie[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(read(service.send(SHOULD_RATE_LIMIT, lie)).0, "8");
}

#[test]
fn arbitrary_bytes_get_a_response_or_an_error_and_do_not_panic() {
    let service = of_policy("limits: [{descriptor: [user], bucket: 2/minute}]");
    let valid = encode(
        REQUEST,
        &json!({"domain": "d", "hitsAddend": 3, "descriptors": [
            {"entries": [{"key": "user", "value": "ann"}, {"key": "p", "value": "é"}], "hitsAddend": 5},
            {"entries": [{"key": "user", "value": "bob"}], "limit": {"requestsPerUnit": 7, "unit": "DAY"}},
            {"entries": [{"key": "user", "value": "bob"}], "isNegativeHits": true},
        ]}),
    );
    let paths = [SHOULD_RATE_LIMIT, "/throttlecrab.RateLimiter/Throttle", "/grpc.health.v1.Health/Check"];
    let mut rng = fastrand::Rng::with_seed(6);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..30_000 {
        let mut message = valid.clone();
        for _ in 0..=rng.usize(..4) {
            let at = rng.usize(..message.len().max(1));
            match rng.usize(..4) {
                0 => message.truncate(at),
                1 => message.insert(at.min(message.len()), rng.u8(..)),
                2 => drop((at < message.len()).then(|| message.remove(at))),
                _ => message.iter_mut().skip(at).take(1).for_each(|it| *it ^= 1 << rng.usize(..8)),
            }
        }
        let (status, reply) = service.call(paths[rng.usize(..paths.len())], &message);
        match status.as_str() {
            "0" => answered += 1,
            "3" | "5" => refused += 1,
            _ => panic!("{status} for {message:?}"),
        }
        assert_eq!(reply.is_some(), status == "0");
    }
    assert!(answered > 200 && refused > 200, "{answered} {refused}");
}

#[test]
fn fields_are_read_as_protobuf_reads_them() {
    // The last value of a repeated scalar field counts, and repeated messages are merged.
    let service = of_policy("limits: [{name: per-user, descriptor: [user], bucket: 9/minute}]");
    let one = encode(REQUEST, &json!({"domain": "x", "hitsAddend": 8}));
    let two = encode(
        REQUEST,
        &json!({"domain": "d", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}),
    );
    // Unknown fields are skipped: a varint, a string, four and eight bytes.
    let unknown = [0xf8, 1, 1, 0xfa, 1, 2, b'h', b'i', 0xfd, 1, 1, 2, 3, 4, 0xf9, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let (status, reply) = service.call(SHOULD_RATE_LIMIT, &[&one[..], &unknown, &two].concat());
    assert_eq!(status, "0");
    let response = decode("envoy.service.ratelimit.v3.RateLimitResponse", &reply.unwrap());
    assert_eq!(response["statuses"][0]["limitRemaining"], 7);
}
