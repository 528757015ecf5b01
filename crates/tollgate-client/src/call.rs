//! The description of a call: its server, route and urgency.
//!
//! A **scope** is a server and a credential: servers count by credential, so that two of them share no bucket. A
//! **route** is a method and a path in which ids are replaced, such as `GET /users/*/posts`. The **resource** is the
//! first id of the path with the segment before it: Discord has one bucket for each channel. All three are keyed
//! hashes, so that a call allocates nothing and no table has a credential.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Method, Uri, header};

use crate::queue::Priority;
use crate::retry::Safety;

/// The urgency and the cost of a call, for requests in their [extensions](http::Extensions).
///
/// ```
/// # use std::time::Duration;
/// # use tollgate_client::{CallOptions, Priority};
/// let options = CallOptions::default().priority(Priority::High).timeout(Duration::from_secs(5)).cost(1_200);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallOptions {
    pub(crate) priority: Priority,
    pub(crate) flow: u64,
    pub(crate) cost: Option<f64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) route: Option<u64>,
    pub(crate) safety: Option<Safety>,
}

impl CallOptions {
    /// Sets the class of the call in queues.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the flow of the call, such as the tenant it is made for. The flows of a class take turns.
    #[must_use]
    pub fn flow(mut self, flow: &impl Hash) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        flow.hash(&mut hasher);
        self.flow = hasher.finish();
        self
    }

    /// Sets the estimated cost in tokens, for servers that count tokens.
    #[must_use]
    pub fn cost(mut self, tokens: u64) -> Self {
        #[allow(clippy::cast_precision_loss)] // an estimate
        let tokens = tokens as f64;
        self.cost = Some(tokens);
        self
    }

    /// Sets the time for the call with all its waits and attempts.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the route of the call, for servers that count by a part of the request that is not in its path, such as
    /// a model in the body.
    #[must_use]
    pub fn route(mut self, route: &impl Hash) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        route.hash(&mut hasher);
        self.route = Some(hasher.finish());
        self
    }

    /// Declares that a second execution of the call does no harm, although its method is not idempotent.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.safety = Some(Safety::Idempotent);
        self
    }
}

/// A call as the scheduler knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallKey {
    pub(crate) scope: u64,
    pub(crate) route: u64,
    pub(crate) resource: u64,
}

/// The headers that carry credentials.
const CREDENTIALS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token"];

/// The segments of a path that tell routes apart.
const MAX_SEGMENTS: usize = 32;

impl CallKey {
    pub(crate) fn of(
        hashes: &impl BuildHasher,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        options: &CallOptions,
    ) -> Self {
        let mut scope = hashes.build_hasher();
        let host = headers.get(header::HOST).map(header::HeaderValue::as_bytes);
        scope.write(uri.authority().map(|it| it.as_str().as_bytes()).or(host).unwrap_or_default());
        for name in CREDENTIALS {
            if let Some(value) = headers.get(name) {
                scope.write(name.as_bytes());
                scope.write(value.as_bytes());
            }
        }
        let scope = scope.finish();
        let (mut route, mut resource) = (hashes.build_hasher(), 0);
        route.write_u64(scope);
        if let Some(given) = options.route {
            route.write_u64(given);
        } else {
            route.write(method.as_str().as_bytes());
        }
        let mut before = "";
        for segment in uri.path().split('/').take(MAX_SEGMENTS) {
            if is_id(segment) {
                if resource == 0 {
                    resource = hashes.hash_one((before, segment));
                }
                route.write(b"/*");
            } else if options.route.is_none() {
                route.write(b"/");
                route.write(segment.as_bytes());
            }
            before = segment;
        }
        Self { scope, route: route.finish(), resource }
    }
}

/// Returns the name of the server, for messages.
pub(crate) fn host_of(parts: (&Uri, &HeaderMap)) -> String {
    let host = parts.0.authority().map(|it| it.host().to_owned());
    let header = || parts.1.get(header::HOST).and_then(|it| it.to_str().ok()).map(str::to_owned);
    host.or_else(header).unwrap_or_else(|| "the server".to_owned())
}

/// Returns the parts of a request that identify it.
pub(crate) fn head(parts: &Parts) -> (&Method, &Uri, &HeaderMap) {
    (&parts.method, &parts.uri, &parts.headers)
}

/// Whether a segment of a path is an id: a number, or a longer text with digits such as a UUID or a hash.
fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let is_hex = || segment.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    digits > 0
        && (digits == segment.len()
            || (segment.len() >= 8 && is_hex())
            || (segment.len() >= 20 && digits >= 4))
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use super::*;

    fn key(method: Method, uri: &str, credential: &str) -> impl Fn(&RandomState) -> CallKey {
        let uri: Uri = uri.parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("authorization", credential.parse().unwrap());
        move |hashes| CallKey::of(hashes, (&method, &uri, &headers), &CallOptions::default())
    }

    #[test]
    fn ids_share_a_route_and_differ_in_their_resource() {
        let hashes = RandomState::new();
        let of = |method, uri: &str, credential: &str| key(method, uri, credential)(&hashes);
        let one = of(Method::GET, "https://h/channels/123/messages/9", "a");
        let two = of(Method::GET, "https://h/channels/124/messages/9?x=1", "a");
        let three = of(Method::GET, "https://h/channels/123/messages/10", "a");
        assert_eq!((one.scope, one.route), (two.scope, two.route));
        assert_ne!(one.resource, two.resource);
        assert_eq!(one, three);
        assert_ne!(one.route, of(Method::POST, "https://h/channels/123/messages/9", "a").route);
        assert_ne!(one.route, of(Method::GET, "https://h/guilds/123/messages/9", "a").route);
        assert_ne!(one.scope, of(Method::GET, "https://h/channels/123/messages/9", "b").scope);
        assert_ne!(one.scope, of(Method::GET, "https://g/channels/123/messages/9", "a").scope);
    }

    #[test]
    fn words_are_not_ids() {
        for id in ["1", "0042", "5f3e9a7c", "123e4567-e89b-12d3-a456-426614174000", "user_8aZ72kQ0182hhdkeuw"]
        {
            assert!(is_id(id), "{id}");
        }
        for word in ["", "v1", "users", "oauth2", "deadbeef", "chat-completions", "sha256"] {
            assert!(!is_id(word), "{word}");
        }
    }
}
