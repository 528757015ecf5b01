//! Upstream services: their addresses, load and health.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::ThrottleShed;
use tollgate_net::HttpUrl;
use tollgate_overload::throttle::ThrottleSettings;

use crate::throttle::{CountedRequest, ThrottleClass, ThrottleCounts, UpstreamThrottle};

/// The maximum duration of an ejection, as a multiple of the first.
const MAX_EJECTION_FACTOR: u32 = 32;

/// The address and protocol of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A host name or IP address.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Plain,
    /// TLS, with HTTP/1.1 or HTTP/2 by ALPN.
    Tls,
    /// HTTP/2 without TLS.
    Http2,
}

/// The reason why a text is not the address of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The scheme is missing or unknown.
    #[error("it does not begin with http://, https:// or h2c://")]
    Scheme,
    /// The host is missing or invalid.
    #[error("it names no host")]
    Host,
    /// The URL has a path; requests keep their own path.
    #[error("it has a path, and requests keep their own")]
    Path,
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let (scheme, _) = text.split_once("://").ok_or(OriginError::Scheme)?;
        let protocol = match scheme {
            "http" => Protocol::Plain,
            "https" => Protocol::Tls,
            "h2c" => Protocol::Http2,
            _ => return Err(OriginError::Scheme),
        };
        // `h2c` is HTTP without TLS to a parser of URLs.
        let url = match protocol {
            Protocol::Http2 => HttpUrl::parse(&text.replacen("h2c", "http", 1)),
            Protocol::Plain | Protocol::Tls => HttpUrl::parse(text),
        };
        let url = url.map_err(|_| OriginError::Host)?;
        if url.target("") != "/" {
            return Err(OriginError::Path);
        }
        Ok(Self { host: url.host().into(), port: url.port(), protocol })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Plain => "http",
            Protocol::Tls => "https",
            Protocol::Http2 => "h2c",
        };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

/// The state of one upstream, shared by all workers.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) origin: Origin,
    running: AtomicUsize,
    /// The number of failures since the last response.
    failures: AtomicU32,
    /// The number of consecutive ejections.
    ejections: AtomicU32,
    /// The end of the ejection, in milliseconds since the creation of [`Upstreams`].
    ejected_until: AtomicU64,
    /// Refuses requests while the upstream rejects most of them, if the settings say so.
    throttle: Option<Arc<UpstreamThrottle>>,
}

/// A set of equivalent upstreams.
#[derive(Debug)]
pub(crate) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    next: AtomicUsize,
    start: Instant,
    eject_after: u32,
    eject_for: Duration,
}

/// A request in progress at an upstream, counted until dropped.
#[derive(Debug)]
pub(crate) struct Load(Arc<Upstream>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upstreams {
    pub(crate) fn new(
        origins: Vec<Origin>,
        (eject_after, eject_for): (u32, Duration),
        throttle: Option<ThrottleSettings>,
    ) -> Self {
        let upstream = |origin| {
            Arc::new(Upstream {
                origin,
                running: AtomicUsize::new(0),
                failures: AtomicU32::new(0),
                ejections: AtomicU32::new(0),
                ejected_until: AtomicU64::new(0),
                throttle: throttle.map(|it| Arc::new(UpstreamThrottle::new(it))),
            })
        };
        Self {
            all: origins.into_iter().map(upstream).collect(),
            next: AtomicUsize::new(0),
            start: Instant::now(),
            eject_after,
            eject_for,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.all.iter().map(|it| &it.origin)
    }

    pub(crate) fn origin(&self, at: usize) -> &Origin {
        &self.all[at].origin
    }

    pub(crate) fn protocol(&self, at: usize) -> Protocol {
        self.all[at].origin.protocol
    }

    /// Counts a request that is about to be sent to an upstream, or returns the reason not to send it.
    /// `is_upload`: the caller is still sending the body.
    pub(crate) fn admit(
        &self,
        at: usize,
        is_upload: bool,
        class: impl FnOnce() -> ThrottleClass,
    ) -> Result<Option<CountedRequest>, ThrottleShed> {
        let Some(throttle) = &self.all[at].throttle else { return Ok(None) };
        throttle.admit(class(), fastrand::f64(), is_upload)
    }

    /// Returns the throttling of each upstream, if it is on.
    pub(crate) fn throttle_counts(&self) -> Vec<ThrottleCounts> {
        let counts =
            |it: &Arc<Upstream>| Some(ThrottleCounts::of(it.origin.to_string(), it.throttle.as_ref()?));
        self.all.iter().filter_map(counts).collect()
    }

    /// Chooses the least loaded healthy upstream, in turn among equals. If every upstream is
    /// ejected, one is tried anyway, because that is better than refusing every request.
    ///
    /// `tried` upstreams are chosen only if there is no other. Returns `None` if there are no
    /// upstreams.
    pub(crate) fn choose(&self, tried: &[usize]) -> Option<(usize, Load)> {
        let at = if self.all.len() == 1 { 0 } else { self.least_loaded(tried) };
        let upstream = self.all.get(at)?;
        upstream.running.fetch_add(1, Ordering::Relaxed);
        Some((at, Load(Arc::clone(upstream))))
    }

    fn least_loaded(&self, tried: &[usize]) -> usize {
        let now = self.now();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.all.len();
        let in_turn = (0..count).map(|step| first.wrapping_add(step) % count);
        in_turn
            .min_by_key(|&at| {
                let upstream = &self.all[at];
                let ejected = upstream.ejected_until.load(Ordering::Relaxed).saturating_sub(now);
                (tried.contains(&at), ejected, upstream.running.load(Ordering::Relaxed))
            })
            .unwrap_or(0)
    }

    /// Records a response.
    pub(crate) fn succeeded(&self, at: usize) {
        let upstream = &self.all[at];
        // Reads first: a write would take the cache line from the other workers each time.
        if upstream.failures.load(Ordering::Relaxed) != 0 {
            upstream.failures.store(0, Ordering::Relaxed);
        }
        if upstream.ejections.load(Ordering::Relaxed) != 0 {
            upstream.ejections.store(0, Ordering::Relaxed);
            upstream.ejected_until.store(0, Ordering::Relaxed);
            tracing::info!(upstream = %upstream.origin, "answers again");
        }
    }

    /// Records a failure: the upstream could not be reached, closed the connection before its
    /// response, or did not start one in time.
    pub(crate) fn failed(&self, at: usize, why: &str) {
        let upstream = &self.all[at];
        let failures = upstream.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < self.eject_after {
            return tracing::debug!(upstream = %upstream.origin, why, "failed");
        }
        let now = self.now();
        if upstream.ejected_until.load(Ordering::Relaxed) > now {
            return;
        }
        let times = upstream.ejections.fetch_add(1, Ordering::Relaxed);
        let stretch = 1u32.checked_shl(times).unwrap_or(MAX_EJECTION_FACTOR).min(MAX_EJECTION_FACTOR);
        let long = u64::try_from((self.eject_for * stretch).as_millis()).unwrap_or(u64::MAX);
        upstream.ejected_until.store(now.saturating_add(long), Ordering::Relaxed);
        tracing::warn!(upstream = %upstream.origin, why, failures, for_ms = long, "ejected an upstream");
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_urls_without_a_path() {
        for (text, read) in [
            ("http://127.0.0.1:3000", Ok("http://127.0.0.1:3000")),
            ("http://api.internal", Ok("http://api.internal:80")),
            ("https://api.internal/", Ok("https://api.internal:443")),
            ("h2c://[::1]:50051", Ok("h2c://[::1]:50051")),
            ("127.0.0.1:3000", Err(OriginError::Scheme)),
            ("ftp://host", Err(OriginError::Scheme)),
            ("http://", Err(OriginError::Host)),
            ("http://host:99999", Err(OriginError::Host)),
            ("http://user@host", Err(OriginError::Host)),
            ("http://host:", Err(OriginError::Host)),
            ("http://host/api", Err(OriginError::Path)),
            ("http://host/?q", Err(OriginError::Path)),
        ] {
            let origin = text.parse::<Origin>().map(|it| it.to_string());
            assert_eq!(origin.as_deref().map_err(|it| *it), read, "{text}");
        }
    }

    fn three_upstreams() -> Upstreams {
        let origins = ["http://a", "http://b", "http://c"].map(|it| it.parse().unwrap());
        Upstreams::new(origins.into(), (2, Duration::from_secs(10)), None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_loaded_is_chosen_and_equals_take_turns() {
        let upstreams = three_upstreams();
        let held: Vec<_> = (0..3).filter_map(|_| upstreams.choose(&[])).collect();
        let mut chosen: Vec<_> = held.iter().map(|it| it.0).collect();
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2]);
        let freed = held[1].0;
        drop(held.into_iter().nth(1));
        // The other two were dropped with the iterator; takes them again.
        let others: Vec<_> =
            (0..3).filter(|it| *it != freed).filter_map(|_| upstreams.choose(&[freed])).collect();
        assert_eq!(upstreams.choose(&[]).unwrap().0, freed);
        drop(others);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_ejections_last_longer_until_a_response() {
        let upstreams = three_upstreams();
        let fail = || (0..2).for_each(|_| upstreams.failed(0, "down"));
        let chosen = || (0..30).filter(|_| upstreams.choose(&[]).unwrap().0 == 0).count();
        fail();
        assert_eq!(chosen(), 0);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(chosen(), 10);
        fail();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(chosen(), 0, "twice as long the second time");
        upstreams.succeeded(0);
        assert_eq!(chosen(), 10);
        (0..3).for_each(|at| (0..2).for_each(|_| upstreams.failed(at, "down")));
        assert!(chosen() > 0, "when none is well they are tried all the same");
    }
}
