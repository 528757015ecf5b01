//! Keys that stand in the path or are the host, and must not be seen there.
//!
//! A limit that counts by a part of the path makes that part a key. Where the policy's
//! `privacy` hides keys, showing the path would show them all the same: so the part stands
//! as `{name}` wherever a path is kept. That holds for every request that such an endpoint
//! covers, whether its limit took part or not.
//!
//! Worked out once for each policy: one that shows keys, or counts by no such part, has no
//! redactor, and its requests pay nothing.
//!
//! Not here: hiding the keys themselves (`tollgate_policy::redact`), addresses (`describe`).

use std::borrow::Cow;

use tollgate::policy::path::Readings;
use tollgate::policy::{Credential, KeyPrivacy, PathSettings, path};
use tollgate::{KeySource, Policy};

/// What is shown instead of a host that is a key.
const HOST: &str = "{host}";
/// What is shown instead of a path with too many readings to look for keys in all of them.
const EXCESSIVE: &str = "/…";

/// What is to be hidden in what requests ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRedactor {
    endpoints: Vec<Endpoint>,
    host: bool,
    paths: PathSettings,
}

/// Paths that have a key in them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    segments: Vec<Segment>,
    /// Whether it covers all below, too.
    tail: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Any,
    /// A part of a key: what is shown instead.
    Key(Box<str>),
}

impl PathRedactor {
    /// What is to be hidden under a policy; `None`: nothing.
    pub fn of(policy: &Policy) -> Option<Self> {
        if policy.privacy() == KeyPrivacy::Plain {
            return None;
        }
        let mut endpoints = Vec::new();
        for limit in policy.limits() {
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
        let host = policy.limits().iter().any(|limit| limit.by().iter().any(is_host))
            || places.any(|place| matches!(place, Credential::Named(source) if is_host(source)));
        // Names are compared without their case below.
        let paths = PathSettings { ignore_case: false, ..policy.paths() };
        (host || !endpoints.is_empty()).then_some(Self { endpoints, host, paths })
    }

    /// A path as it may be seen.
    pub fn path<'r>(&self, written: &'r str) -> Cow<'r, str> {
        // Servers may see other parts of it, and so do their limits.
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

    /// A host as it may be seen.
    pub(crate) const fn host<'r>(&self, host: &'r str) -> &'r str {
        if self.host { HOST } else { host }
    }
}

impl Endpoint {
    /// A pattern as the policy writes it.
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

/// The parts of a path; none of `/`.
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
    fn only_a_policy_that_hides_keys_and_counts_by_such_a_part_has_a_redactor() {
        let by_path = "{endpoint: '/users/{email}', by: 'path:email', bucket: 1/s}";
        assert_eq!(redactor("plain", by_path), None);
        assert_eq!(redactor("hashed", "{endpoint: '/users/{email}', by: user, bucket: 1/s}"), None);
        assert!(redactor("hashed", by_path).is_some() && redactor("truncated", by_path).is_some());
    }

    #[test]
    fn the_parts_that_are_keys_stand_as_their_names() {
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
