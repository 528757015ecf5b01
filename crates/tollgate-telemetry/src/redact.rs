//! Redacts keys that appear in a path or as the host.
//!
//! A limit that counts by a path parameter makes that segment a key. If the policy's `privacy` hides
//! keys, the segment is replaced by `{name}` wherever a path is stored. This applies to every request
//! that matches such an endpoint, whether or not its limit took part.
//!
//! A redactor is built once for each policy. A policy that shows keys, or that counts by no path
//! parameter or host, has no redactor, and its requests pay nothing.
//!
//! Redaction of the keys themselves is in `tollgate_policy::redact`, of addresses in `describe`.

use std::borrow::Cow;

use tollgate::policy::path::Readings;
use tollgate::policy::{Credential, KeyPrivacy, PathSettings, path};
use tollgate::{KeySource, Policy};

/// The replacement for a host that is a key.
const HOST: &str = "{host}";
/// The replacement for a path with too many readings to search all of them for keys.
const EXCESSIVE: &str = "/…";

/// Replaces keys in the paths and hosts of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRedactor {
    endpoints: Vec<Endpoint>,
    host: bool,
    paths: PathSettings,
}

/// A path pattern that contains a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    segments: Vec<Segment>,
    /// Whether the pattern covers all paths below it.
    tail: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Any,
    /// A segment that is a key, with its replacement.
    Key(Box<str>),
}

impl PathRedactor {
    /// Returns the redactor of a policy; `None` if there is nothing to redact.
    pub fn of(policy: &Policy) -> Option<Self> {
        if policy.privacy() == KeyPrivacy::Plain {
            return None;
        }
        let mut endpoints = Vec::new();
        for limit in policy.matched_limits() {
            let name = |source: &KeySource| match source {
                KeySource::Path(name) => Some(format!("{{{name}}}")),
                _ => None,
            };
            let names: Vec<_> = limit.by().iter().filter_map(name).collect();
            let patterns = if names.is_empty() { &[] } else { limit.endpoints() };
            endpoints.extend(patterns.iter().map(|it| Endpoint::of(&it.to_string(), &names)));
        }
        let is_host = |source: &KeySource| matches!(source, KeySource::Header(name) if &**name == "host");
        let identify = policy.identify();
        let mut places = identify.user.iter().chain(&identify.api_key).chain(&identify.tenant);
        let host = policy.matched_limits().iter().any(|limit| limit.by().iter().any(is_host))
            || places.any(|place| matches!(place, Credential::Named(source) if is_host(source)));
        // The comparison below ignores case.
        let paths = PathSettings { ignore_case: false, ..policy.paths() };
        (host || !endpoints.is_empty()).then_some(Self { endpoints, host, paths })
    }

    /// Returns the path with its keys replaced.
    pub fn path<'r>(&self, written: &'r str) -> Cow<'r, str> {
        // A server may normalize the path differently, and limits match every reading.
        let readings = Readings::of(written, self.paths);
        if readings.is_excessive() {
            return Cow::Borrowed(EXCESSIVE);
        }
        match readings.iter().find_map(|reading| self.redacted(reading)) {
            Some(redacted) => redacted.into(),
            None => path::normal(written),
        }
    }

    fn redacted(&self, path: &str) -> Option<String> {
        let mut shown: Vec<&str> = segments(path).collect();
        let mut hides = false;
        for endpoint in self.endpoints.iter().filter(|it| it.covers(path)) {
            for (place, segment) in shown.iter_mut().zip(&endpoint.segments) {
                if let Segment::Key(name) = segment {
                    (*place, hides) = (name, true);
                }
            }
        }
        hides.then(|| format!("/{}", shown.join("/")))
    }

    /// Returns the host, or a placeholder if the host is a key.
    pub(crate) const fn host<'r>(&self, host: &'r str) -> &'r str {
        if self.host { HOST } else { host }
    }
}

impl Endpoint {
    /// Parses a pattern as written in the policy.
    fn of(pattern: &str, names: &[String]) -> Self {
        let mut endpoint = Self { segments: Vec::new(), tail: false };
        for written in segments(pattern).filter(|it| !matches!(*it, "" | ".")) {
            endpoint.segments.push(match written {
                "**" => {
                    endpoint.tail = true;
                    continue;
                }
                "*" => Segment::Any,
                name if names.iter().any(|known| known == name) => Segment::Key(name.into()),
                name if name.starts_with('{') => Segment::Any,
                literal => Segment::Literal(path::normal(literal).trim_start_matches('/').into()),
            });
        }
        endpoint
    }

    fn covers(&self, path: &str) -> bool {
        let mut parts = segments(path);
        let fits = self.segments.iter().all(|segment| match (segment, parts.next()) {
            (_, None) => false,
            (Segment::Literal(literal), Some(part)) => literal.eq_ignore_ascii_case(part),
            (Segment::Any | Segment::Key(_), Some(_)) => true,
        });
        fits && (self.tail || parts.next().is_none())
    }
}

/// Splits a path into its segments; `/` has no segments.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let rest = path.strip_prefix('/').unwrap_or(path);
    rest.split('/').filter(move |_| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(privacy: &str, limits: &str) -> Option<PathRedactor> {
        PathRedactor::of(
            &Policy::parse(&format!("privacy: {{keys: {privacy}}}\nlimits: [{limits}]")).unwrap(),
        )
    }

    #[test]
    fn only_a_policy_that_hides_keys_and_counts_by_path_or_host_has_a_redactor() {
        let by_path = "{endpoint: '/users/{email}', by: 'path:email', bucket: 1/s}";
        assert_eq!(redactor("plain", by_path), None);
        assert_eq!(redactor("hashed", "{endpoint: '/users/{email}', by: user, bucket: 1/s}"), None);
        assert!(redactor("hashed", by_path).is_some() && redactor("truncated", by_path).is_some());
    }

    #[test]
    fn segments_that_are_keys_are_replaced_by_their_names() {
        let redactor = redactor(
            "hashed",
            "{endpoint: ['/users/{email}/**', '/{shop}/by/{email}'], by: [ip, 'path:email'], bucket: 1/s, missing: skip},
             {endpoint: '/x/{one}/{two}', by: ['path:two', 'path:one'], bucket: 1/s}",
        )
        .unwrap();
        for (written, shown) in [
            ("/users/ann@example.com", "/users/{email}"),
            ("/users/ann@example.com/orders/1", "/users/{email}/orders/1"),
            ("//users/./ann%40example.com/?q=ann@example.com", "/users/{email}"),
            ("/a/../users/ann", "/users/{email}"),
            ("/users/ann/../../other", "/users/{email}/../../other"),
            ("/acme/by/ann", "/acme/by/{email}"),
            ("/x/1/2", "/x/{one}/{two}"),
            ("/x/1/2/3", "/x/1/2/3"),
            ("/users", "/users"),
            ("/", "/"),
        ] {
            assert_eq!(redactor.path(written), shown, "{written}");
        }
        assert_eq!(redactor.host("example.com"), "example.com");
    }

    #[test]
    fn a_host_that_is_a_key_is_not_shown() {
        let redactor = redactor("hashed", "{by: 'header:Host', bucket: 1/s}").unwrap();
        assert_eq!(redactor.host("ann.example.com"), "{host}");
        assert_eq!(redactor.path("/a?b"), "/a");
    }
}
