//! Reads the `gateway` section of the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Span;
use tollgate_document::{Fields, Located, Node, Problems, Words};
use tollgate_net::Caps;

use crate::override_headers::{OverrideHeaders, is_override};
use crate::throttle::{self, ThrottleConfig};
use crate::upstream::Origin;

/// The settings of a [`Gateway`](crate::Gateway): the `gateway` section of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The destination of requests.
    pub target: Target,
    /// The paths of the server certificate and its key, both PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The path of the CA certificates to trust for upstreams instead of the public ones.
    pub upstream_ca: Option<PathBuf>,
    /// Whether every connection starts with a PROXY header.
    pub proxy_protocol: bool,
    /// The headers that tell upstreams the client address.
    pub forwarding: Forwarding,
    /// The treatment of headers that override path, method or host.
    pub override_headers: OverrideHeaders,
    /// The number of worker threads. `None`: one for each core.
    pub workers: Option<usize>,
    /// The caps for one client connection.
    pub caps: Caps,
    /// The maximum number of bytes of a request body.
    pub body: Option<u64>,
    /// The maximum number of requests that are delayed at a time.
    pub tarpit: usize,
    /// The maximum number of requests that wait in the queues of their limits at a time, over all
    /// keys and workers.
    pub waiting: usize,
    /// The maximum number of requests that continue after their callers have disconnected, over all
    /// workers.
    pub detached: usize,
    /// The timeout for connecting to an upstream.
    pub connect: Duration,
    /// The timeout until an upstream starts its response.
    pub answer: Duration,
    /// The maximum time that a body may stall, in either direction.
    pub still: Duration,
    /// The maximum time from the head of a request to the end of its response.
    pub total: Option<Duration>,
    /// The maximum time that running requests may take when the gateway stops.
    pub drain: Duration,
    /// The number of consecutive failures after which an upstream is ejected.
    pub eject_after: u32,
    /// The duration of the first ejection.
    pub eject_for: Duration,
    /// The throttling of upstreams that reject most requests, if it is on.
    pub throttle: Option<ThrottleConfig>,
    /// The maximum number of idle connections that each worker keeps to each upstream.
    pub keep: usize,
    /// The implementation that serves plain HTTP/1.1 requests.
    pub http1: Http1Server,
}

/// The implementation that serves plain HTTP/1.1 requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http1Server {
    /// The gateway itself. Requests that are unusual or need more than a decision are still served by hyper.
    #[default]
    Native,
    /// hyper serves all requests.
    Hyper,
}

/// The destination of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The built-in demo service.
    Demo,
    /// One or more equivalent services.
    Upstreams(Vec<Origin>),
}

/// The headers that tell upstreams the client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Both.
    Both,
    /// No headers; forwarding headers of the client are removed.
    Off,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            target: Target::Demo,
            tls: None,
            upstream_ca: None,
            proxy_protocol: false,
            forwarding: Forwarding::XForwarded,
            override_headers: OverrideHeaders::default(),
            workers: None,
            caps: Caps::default(),
            body: None,
            tarpit: 1_000,
            waiting: 10_000,
            detached: 1_000,
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(60),
            still: Duration::from_secs(60),
            total: None,
            drain: Duration::from_secs(30),
            eject_after: 5,
            eject_for: Duration::from_secs(10),
            throttle: None,
            keep: 256,
            http1: Http1Server::default(),
        }
    }
}

const GATEWAY: Words = Words {
    section: "`gateway`",
    known: &[
        "upstream",
        "tls",
        "upstream_ca",
        "proxy_protocol",
        "forwarded",
        "override_headers",
        "paths",
        "workers",
        "timeouts",
        "caps",
        "eject",
        "throttle",
        "keep_alive",
        "http1",
        "capacity",
    ],
    synonyms: &[
        ("upstream", &["upstreams", "backend", "backends", "target"]),
        ("paths", &["path"]),
        ("override_headers", &["method_override"]),
        ("workers", &["threads"]),
        ("timeouts", &["timeout"]),
        ("tls", &["certificate"]),
        ("capacity", &["max_rps", "rps"]),
        ("throttle", &["throttling", "admission_control"]),
    ],
};

const TLS: Words = Words {
    section: "`tls`",
    known: &["certificate", "key"],
    synonyms: &[("certificate", &["cert"]), ("key", &["certificate_key", "private_key"])],
};

const TIMEOUTS: Words = Words {
    section: "`timeouts`",
    known: &["connect", "headers", "idle", "total", "client_headers", "client_idle", "drain"],
    synonyms: &[("headers", &["read", "response"]), ("client_idle", &["keep_alive"])],
};

const CAPS: Words = Words {
    section: "`caps`",
    known: &["header_bytes", "headers", "body", "connections", "streams", "tarpit", "waiting", "detached"],
    synonyms: &[
        ("header_bytes", &["header_size"]),
        ("body", &["body_size", "max_body"]),
        ("tarpit", &["held"]),
        ("waiting", &["queue", "queued"]),
        ("detached", &["abandoned", "outliving"]),
    ],
};

const EJECT: Words = Words {
    section: "`eject`",
    known: &["after", "for"],
    synonyms: &[("after", &["failures", "max_fails"]), ("for", &["fail_timeout"])],
};

const FORWARDINGS: [(&str, Forwarding); 4] = [
    ("x-forwarded", Forwarding::XForwarded),
    ("forwarded", Forwarding::Forwarded),
    ("both", Forwarding::Both),
    ("off", Forwarding::Off),
];

const HTTP1_SERVERS: [(&str, Http1Server); 2] =
    [("native", Http1Server::Native), ("hyper", Http1Server::Hyper)];

const MAX_TIMEOUT: Span = Span::from_hours(24);

impl GatewaySettings {
    /// Reads the section; missing settings have their defaults.
    pub fn read(section: Option<&Node>, problems: &mut Problems) -> Self {
        let mut settings = Self::default();
        if let Some(fields) = section.and_then(|node| node.fields(&GATEWAY, problems)) {
            settings.take(&fields, problems);
        }
        settings
    }

    fn take(&mut self, fields: &Fields<'_>, problems: &mut Problems) {
        if let Some(target) = fields.get("upstream").and_then(|node| target(node, problems)) {
            self.target = target;
        }
        self.tls = fields.get("tls").and_then(|node| {
            let tls = node.fields(&TLS, problems)?;
            let mut file = |word| {
                if let Some(node) = tls.get(word) {
                    return path(node, word, problems);
                }
                problems
                    .error(tls.place(), format!("`tls` has no `{word}`"))
                    .help("it needs two PEM files: `certificate` and `key`");
                None
            };
            let (certificate, key) = (file("certificate"), file("key"));
            Some((certificate?, key?))
        });
        self.upstream_ca = fields.get("upstream_ca").and_then(|node| path(node, "upstream_ca", problems));
        set(
            &mut self.proxy_protocol,
            fields.get("proxy_protocol").and_then(|it| it.boolean("`proxy_protocol`", problems)),
        );
        set(
            &mut self.forwarding,
            fields.get("forwarded").and_then(|it| it.choice("`forwarded`", &FORWARDINGS, problems)),
        );
        set(
            &mut self.http1,
            fields.get("http1").and_then(|it| it.choice("`http1`", &HTTP1_SERVERS, problems)),
        );
        self.workers = fields
            .get("workers")
            .and_then(|it| it.whole("`workers`", 1..=1024, problems))
            .map(|it| size(it.value));
        set_size(
            &mut self.keep,
            fields.get("keep_alive").and_then(|it| it.whole("`keep_alive`", 0..=65_536, problems)),
        );
        if let Some(kept) = fields.get("override_headers").and_then(|node| override_headers(node, problems)) {
            self.override_headers = kept;
        }
        // `paths` belongs to the policy, which reads it from this section too.
        // `capacity` has no effect here: `tollgate validate` compares limits with it.
        if let Some(node) = fields.get("capacity") {
            node.rate("`capacity`", problems);
        }
        if let Some(timeouts) = fields.get("timeouts").and_then(|node| node.fields(&TIMEOUTS, problems)) {
            self.take_timeouts(&timeouts, problems);
        }
        if let Some(caps) = fields.get("caps").and_then(|node| node.fields(&CAPS, problems)) {
            self.take_caps(&caps, problems);
        }
        if let Some(eject) = fields.get("eject").and_then(|node| node.fields(&EJECT, problems)) {
            if let Some(after) =
                eject.get("after").and_then(|it| it.whole("`after`", 1..=1_000_000, problems))
            {
                self.eject_after = u32::try_from(after.value).unwrap_or(u32::MAX);
            }
            set(&mut self.eject_for, eject.get("for").and_then(|it| time(it, "`for`", problems)));
        }
        self.throttle = fields.get("throttle").and_then(|node| throttle::read(node, problems));
    }

    fn take_timeouts(&mut self, fields: &Fields<'_>, problems: &mut Problems) {
        for (word, timeout) in [
            ("connect", &mut self.connect),
            ("headers", &mut self.answer),
            ("idle", &mut self.still),
            ("client_headers", &mut self.caps.head),
            ("client_idle", &mut self.caps.idle),
            ("drain", &mut self.drain),
        ] {
            set(timeout, fields.get(word).and_then(|it| time(it, &format!("`{word}`"), problems)));
        }
        self.caps.stalled = self.still;
        self.total = fields
            .get("total")
            .filter(|it| it.text() != Some("off"))
            .and_then(|it| time(it, "`total`", problems))
            .map(|it| it.value);
    }

    fn take_caps(&mut self, fields: &Fields<'_>, problems: &mut Problems) {
        let caps = &mut self.caps;
        set_size(
            &mut caps.header_bytes,
            fields.get("header_bytes").and_then(|it| it.bytes("`header_bytes`", 1024..=1 << 20, problems)),
        );
        for (word, cap, range) in [
            ("headers", &mut caps.headers, 8..=4096),
            ("connections", &mut caps.connections, 1..=1_000_000),
            ("tarpit", &mut self.tarpit, 0..=1_000_000),
            ("waiting", &mut self.waiting, 0..=1_000_000),
            ("detached", &mut self.detached, 0..=1_000_000),
        ] {
            set_size(cap, fields.get(word).and_then(|it| it.whole(&format!("`{word}`"), range, problems)));
        }
        if let Some(streams) =
            fields.get("streams").and_then(|it| it.whole("`streams`", 1..=100_000, problems))
        {
            caps.streams = u32::try_from(streams.value).unwrap_or(u32::MAX);
        }
        self.body = fields
            .get("body")
            .filter(|it| it.text() != Some("off"))
            .and_then(|it| it.bytes("`body`", 0..=1 << 50, problems))
            .map(|it| it.value);
    }
}

fn set<T>(setting: &mut T, written: Option<Located<T>>) {
    if let Some(written) = written {
        *setting = written.value;
    }
}

fn set_size(setting: &mut usize, written: Option<Located<u64>>) {
    set(setting, written.map(|it| it.map(size)));
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn time(node: &Node, what: &str, problems: &mut Problems) -> Option<Located<Duration>> {
    let span = node.span(what, Span::from_millis(1)..=MAX_TIMEOUT, problems)?;
    Some(span.map(|span| Duration::from_micros(span.as_micros())))
}

fn path(node: &Node, what: &str, problems: &mut Problems) -> Option<PathBuf> {
    Some(node.word(&format!("`{what}`"), problems)?.value.into())
}

/// Reads `remove`, `keep`, or the names of the headers that are kept.
fn override_headers(node: &Node, problems: &mut Problems) -> Option<OverrideHeaders> {
    match node.text() {
        Some("remove") => return Some(OverrideHeaders::Removed),
        Some("keep") => return Some(OverrideHeaders::Kept),
        _ => {}
    }
    let mut kept = Vec::new();
    for item in node.items() {
        let name = item.word("a header", problems)?.value.to_ascii_lowercase();
        if !is_override(&name) {
            problems
                .error(item.place, format!("{} is not removed in any case", item.describe()))
                .label("`remove`, `keep`, or the names of headers that are kept")
                .help("these are about headers such as X-Original-URL and X-HTTP-Method-Override, which replace path or method");
            return None;
        }
        kept.push(name.into());
    }
    Some(OverrideHeaders::KeptOnly(kept))
}

fn target(node: &Node, problems: &mut Problems) -> Option<Target> {
    if node.text() == Some("demo") {
        return Some(Target::Demo);
    }
    let items = node.items();
    if items.is_empty() {
        problems
            .error(node.place, "`upstream` names no service")
            .help("write a URL, such as http://127.0.0.1:3000");
        return None;
    }
    let origins: Option<Vec<_>> = items.iter().map(|item| origin(item, problems)).collect();
    origins.map(Target::Upstreams)
}

fn origin(node: &Node, problems: &mut Problems) -> Option<Origin> {
    let word = node.word("an upstream", problems)?;
    match word.value.parse() {
        Ok(origin) => Some(origin),
        Err(wrong) => {
            let wrong: crate::upstream::OriginError = wrong;
            problems
                .error(node.place, format!("{} is not an upstream: {wrong}", node.describe()))
                .help("an upstream is http://HOST:PORT, https://HOST, or h2c://HOST:PORT for HTTP/2 without TLS; `demo` is a service of our own");
            None
        }
    }
}
