//! A service with a manual clock, and messages encoded by their descriptors.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_envoy::{EnvoyConfig, EnvoyFile};
use tollgate_rls::{GrpcBody, Headers, Rls, RlsSettings};

pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) type Store = MemoryStore<ManualClock>;

/// Thirty seconds into a minute.
pub(crate) const START: u64 = 1_760_000_070;

pub(crate) struct Service {
    pub(crate) rls: Rls<Store>,
}

/// Creates a service for a policy, without headers.
pub(crate) fn of_policy(text: &str) -> Service {
    of(Policy::parse(text).unwrap_or_else(|wrong| panic!("{}", wrong.render("policy"))), Some(Headers::Off))
}

/// Creates a service for an envoyproxy/ratelimit file.
pub(crate) fn of_file(text: &str) -> Service {
    of(applied(text), Some(Headers::Off))
}

pub(crate) fn applied(text: &str) -> Policy {
    applied_to(Policy::default(), text)
}

/// Adds an envoyproxy/ratelimit file to a policy.
pub(crate) fn applied_to(policy: Policy, text: &str) -> Policy {
    let file = EnvoyFile { name: "test.yaml".to_owned(), text: text.to_owned() };
    let config = EnvoyConfig::read(&[file], false).unwrap_or_else(|wrong| {
        panic!("{}", wrong.iter().map(|(name, it)| it.render(name)).collect::<String>())
    });
    config.apply(policy).unwrap()
}

pub(crate) fn of(policy: Policy, headers: Option<Headers>) -> Service {
    with_settings(policy, RlsSettings { headers, ..RlsSettings::default() })
}

pub(crate) fn with_settings(policy: Policy, settings: RlsSettings) -> Service {
    let store = MemoryStore::with_seed(1_000, ManualClock::at(Timestamp::from_secs(START)), 1);
    let limiter = Limiter::with_store(policy, store);
    Service { rls: Rls::new(limiter.into(), settings) }
}

impl Service {
    pub(crate) fn pass(&self, seconds: u64) {
        self.rls.limiter().load().clock().advance(Span::from_secs(seconds));
    }

    /// Sends a request and returns the response message.
    #[track_caller]
    pub(crate) fn ask(&self, request: &Value) -> Value {
        let message = encode("envoy.service.ratelimit.v3.RateLimitRequest", request);
        let (status, reply) = self.call(SHOULD_RATE_LIMIT, &message);
        assert_eq!(status, "0", "{request}");
        decode("envoy.service.ratelimit.v3.RateLimitResponse", &reply.expect("there is a message"))
    }

    /// Returns the overall code and the code of each descriptor: `OVER_LIMIT: OK OVER_LIMIT`.
    #[track_caller]
    pub(crate) fn codes(&self, request: &Value) -> String {
        let response = self.ask(request);
        let codes =
            response["statuses"].as_array().expect("statuses").iter().map(|it| it["code"].as_str().unwrap());
        format!("{}: {}", response["overallCode"].as_str().unwrap(), codes.collect::<Vec<_>>().join(" "))
    }

    /// Returns the gRPC status, and the message if there is one.
    pub(crate) fn call(&self, path: &str, message: &[u8]) -> (String, Option<Bytes>) {
        let response = self.send(path, framed(message));
        read(response)
    }

    pub(crate) fn send(&self, path: &str, body: Vec<u8>) -> Response<GrpcBody> {
        let request = Request::post(format!("http://rls.test{path}"))
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        pollster::block_on(self.rls.answer(request))
    }
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    body
}

/// Reads the status and the message of a response.
pub(crate) fn read(response: Response<GrpcBody>) -> (String, Option<Bytes>) {
    let status = |headers: &HeaderMap| headers["grpc-status"].to_str().unwrap().to_owned();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    if response.headers().contains_key("grpc-status") {
        return (status(response.headers()), None);
    }
    let collected = pollster::block_on(response.into_body().collect()).unwrap();
    let trailers = collected.trailers().expect("an answer has trailers").clone();
    let body = collected.to_bytes();
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!((body[0], usize::try_from(length).unwrap()), (0, body.len() - 5));
    (status(&trailers), Some(body.slice(5..)))
}

pub(crate) fn pool() -> DescriptorPool {
    let set = include_bytes!("../../proto/descriptors.bin");
    DescriptorPool::decode(&set[..]).expect("the descriptors can be read")
}

#[track_caller]
pub(crate) fn encode(name: &str, message: &Value) -> Vec<u8> {
    let descriptor = pool().get_message_by_name(name).expect("it is described");
    DynamicMessage::deserialize(descriptor, message).unwrap().encode_to_vec()
}

#[track_caller]
pub(crate) fn decode(name: &str, message: &[u8]) -> Value {
    let descriptor = pool().get_message_by_name(name).expect("it is described");
    let message = DynamicMessage::decode(descriptor, message).unwrap();
    let options = SerializeOptions::new().skip_default_fields(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}
