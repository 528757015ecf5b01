//! Calls of every kind: health, reflection, throttlecrab, and invalid calls.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tollgate_rls::GrpcBody;

use crate::support::{SHOULD_RATE_LIMIT, Service, decode, encode, framed, of_policy};

fn service() -> Service {
    of_policy("limits: [{name: per-user, descriptor: [user], bucket: 3/minute}]")
}

fn health(service: &Service, name: &str) -> (String, Option<Value>) {
    let message = encode("grpc.health.v1.HealthCheckRequest", &json!({"service": name}));
    let (status, reply) = service.call("/grpc.health.v1.Health/Check", &message);
    (status, reply.map(|it| decode("grpc.health.v1.HealthCheckResponse", &it)))
}

#[test]
fn health_knows_the_server_and_its_services() {
    let service = service();
    let serving = ("0".to_owned(), Some(json!({"status": "SERVING"})));
    for name in [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
        "throttlecrab.RateLimiter",
        "kuadrant.service.ratelimit.v1.RateLimitService",
    ] {
        assert_eq!(health(&service, name), serving, "{name}");
    }
    assert_eq!(health(&service, "other"), ("5".to_owned(), None));
    service.rls.drain();
    assert_eq!(health(&service, ""), ("0".to_owned(), Some(json!({"status": "NOT_SERVING"}))));
}

/// The next event of a stream, if there is one by now: a message, or the gRPC status and the end.
#[derive(Debug, PartialEq)]
enum Next {
    Nothing,
    Message(Bytes),
    End(String),
}

fn next(body: &mut GrpcBody) -> Next {
    let mut poll = || pollster::block_on(poll_fn(|cx| Poll::Ready(pin!(&mut *body).poll_frame(cx))));
    let Poll::Ready(frame) = poll() else { return Next::Nothing };
    match frame.expect("the stream goes on").unwrap().into_data() {
        Ok(data) => Next::Message(data.slice(5..)),
        Err(trailers) => {
            assert!(matches!(poll(), Poll::Ready(None)), "trailers are the end");
            let trailers = trailers.into_trailers().unwrap();
            Next::End(trailers["grpc-status"].to_str().unwrap().to_owned())
        }
    }
}

#[test]
fn watchers_are_notified_of_draining_and_their_streams_end() {
    let service = service();
    let watch = |name: &str| {
        let message = encode("grpc.health.v1.HealthCheckRequest", &json!({"service": name}));
        service.send("/grpc.health.v1.Health/Watch", framed(&message)).into_body()
    };
    let is = |status: &str| {
        Next::Message(Bytes::from(encode("grpc.health.v1.HealthCheckResponse", &json!({"status": status}))))
    };
    let (mut known, mut unknown) = (watch("ratelimit"), watch("other"));
    assert_eq!((next(&mut known), next(&mut unknown)), (is("SERVING"), is("SERVICE_UNKNOWN")));
    assert_eq!((next(&mut known), next(&mut unknown)), (Next::Nothing, Next::Nothing));
    service.rls.drain();
    assert_eq!((next(&mut known), next(&mut unknown)), (is("NOT_SERVING"), Next::End("14".to_owned())));
    assert_eq!(next(&mut known), Next::End("14".to_owned()));
    let mut late = watch("ratelimit");
    assert_eq!((next(&mut late), next(&mut late)), (is("NOT_SERVING"), Next::End("14".to_owned())));
}

/// A request stream that never ends: these bytes, then silence.
struct Open(Option<Bytes>);

impl http_body::Body for Open {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |it| Poll::Ready(Some(Ok(http_body::Frame::data(it)))))
    }
}

#[test]
fn reflection_answers_pending_requests_and_ends_with_the_server() {
    let service = service();
    let question = encode("grpc.reflection.v1.ServerReflectionRequest", &json!({"listServices": "*"}));
    let talk = || {
        let request =
            Request::post("http://rls.test/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
                .header("content-type", "application/grpc")
                .body(Open(Some(Bytes::from(framed(&question)))))
                .unwrap();
        pollster::block_on(service.rls.answer(request)).into_body()
    };
    let (mut before, mut late) = (talk(), talk());
    assert!(matches!(next(&mut before), Next::Message(_)));
    assert_eq!(next(&mut before), Next::Nothing);
    service.rls.drain();
    assert_eq!(next(&mut before), Next::End("0".to_owned()));
    assert!(matches!(next(&mut late), Next::Message(_)), "the question had come");
    assert_eq!(next(&mut late), Next::End("0".to_owned()));
}

/// Returns all responses to requests that arrive at once.
fn reflect(version: &str, questions: &[Value]) -> Vec<Value> {
    let service = service();
    let request = format!("grpc.reflection.{version}.ServerReflectionRequest");
    let body: Vec<u8> = questions.iter().flat_map(|it| framed(&encode(&request, it))).collect();
    let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
    let response = service.send(&path, body);
    let collected = pollster::block_on(response.into_body().collect()).unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    let mut rest = collected.to_bytes();
    let mut answers = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let message = rest.split_to(5 + length).slice(5..);
        answers.push(decode(&format!("grpc.reflection.{version}.ServerReflectionResponse"), &message));
    }
    answers
}

#[test]
fn reflection_lists_and_describes_the_services() {
    for version in ["v1", "v1alpha"] {
        let answers = reflect(
            version,
            &[
                json!({"listServices": "*"}),
                json!({"host": "h", "fileContainingSymbol": "envoy.service.ratelimit.v3.RateLimitService"}),
                json!({"fileContainingSymbol": "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit"}),
                json!({"fileContainingSymbol": "throttlecrab.RateLimiter.Throttle"}),
                json!({"fileByFilename": "google/protobuf/struct.proto"}),
                json!({"allExtensionNumbersOfType": "throttlecrab.ThrottleRequest"}),
                json!({"fileContainingSymbol": "no.such.Thing"}),
                json!({"fileContainingExtension": {"containingType": "x", "extensionNumber": 1}}),
            ],
        );
        let services: Vec<_> =
            answers[0]["listServicesResponse"]["service"].as_array().unwrap().iter().collect();
        for name in [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "kuadrant.service.ratelimit.v1.RateLimitService",
            "throttlecrab.RateLimiter",
        ] {
            assert!(services.iter().any(|it| it["name"] == name), "{name}");
        }
        assert_eq!(answers[1]["validHost"], "h");
        let files = |at: usize| {
            answers[at]["fileDescriptorResponse"]["fileDescriptorProto"].as_array().unwrap().len()
        };
        // The service and its transitive imports.
        assert_eq!([files(1), files(2), files(3), files(4)], [8, 8, 1, 1]);
        assert_eq!(answers[5]["allExtensionNumbersResponse"]["baseTypeName"], "throttlecrab.ThrottleRequest");
        assert_eq!(answers[6]["errorResponse"]["errorCode"], 5);
        assert_eq!(answers[7]["errorResponse"]["errorCode"], 5);
    }
}

#[test]
fn throttlecrab_clients_need_only_another_port() {
    let service = service();
    let throttle = |quantity: i32| {
        let numbers =
            json!({"key": "k", "maxBurst": 3, "countPerPeriod": 60, "period": 60, "quantity": quantity});
        let message = encode("throttlecrab.ThrottleRequest", &numbers);
        let (status, reply) = service.call("/throttlecrab.RateLimiter/Throttle", &message);
        (status, reply.map(|it| decode("throttlecrab.ThrottleResponse", &it)))
    };
    let ok = |reply: Value| ("0".to_owned(), Some(reply));
    assert_eq!(throttle(1), ok(json!({"allowed": true, "limit": 3, "remaining": 2, "resetAfter": 1})));
    assert_eq!(throttle(2), ok(json!({"allowed": true, "limit": 3, "resetAfter": 3})));
    assert_eq!(throttle(1), ok(json!({"limit": 3, "retryAfter": 1, "resetAfter": 3})));
    assert_eq!(throttle(-1), ("3".to_owned(), None));
}

#[test]
fn invalid_quotas_are_refused() {
    let service = service();
    for (burst, count, period) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1)] {
        let numbers = json!({"key": "k", "maxBurst": burst, "countPerPeriod": count, "period": period});
        let message = encode("throttlecrab.ThrottleRequest", &numbers);
        assert_eq!(service.call("/throttlecrab.RateLimiter/Throttle", &message), ("3".to_owned(), None));
    }
}

#[test]
fn requests_that_are_not_grpc_get_an_http_error() {
    let service = service();
    let send = |method: Method, path: &str, content_type: &str| {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://rls.test{path}"))
            .header("content-type", content_type)
            .body(Full::new(Bytes::from(framed(&[]))))
            .unwrap();
        pollster::block_on(service.rls.answer(request))
    };
    let get = send(Method::GET, SHOULD_RATE_LIMIT, "application/grpc");
    assert_eq!(
        (get.status().as_u16(), &get.headers()["allow"]),
        (405, &http::HeaderValue::from_static("POST"))
    );
    assert_eq!(send(Method::POST, SHOULD_RATE_LIMIT, "application/json").status(), 415);
    let unknown = send(Method::POST, "/no.such.Service/Method", "application/grpc");
    assert_eq!((unknown.status().as_u16(), unknown.headers()["grpc-status"].to_str().unwrap()), (200, "12"));
    assert!(unknown.into_body().is_end_stream());
}

#[test]
fn compressed_messages_are_refused_with_the_supported_encoding() {
    let service = service();
    let mut body = framed(b"x");
    body[0] = 1;
    let response = service.send(SHOULD_RATE_LIMIT, body);
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-accept-encoding"], "identity");
}

#[test]
fn responses_are_counted_by_their_code() {
    let service = service();
    let user = json!({"entries": [{"key": "user", "value": "a"}]});
    for _ in 0..4 {
        service.ask(&json!({"domain": "d", "descriptors": [user]}));
    }
    service.call(SHOULD_RATE_LIMIT, &[]);
    let mut metrics = String::new();
    service.rls.metrics(&mut metrics);
    for line in [
        r#"tollgate_rls_answers_total{surface="envoy",answer="ok"} 3"#,
        r#"tollgate_rls_answers_total{surface="envoy",answer="over_limit"} 1"#,
        r#"tollgate_rls_answers_total{surface="json",answer="ok"} 0"#,
        r#"tollgate_rls_errors_total{code="invalid_argument"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}
