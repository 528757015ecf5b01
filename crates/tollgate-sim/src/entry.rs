//! One request of a log, as a policy sees it.
//!
//! For whoever makes requests instead of reading them: `Entry::new(at, "GET", "/path?query")`, then set `client`, `cost`
//! and `status`, and call `set_user` and the like. For whoever reads: [`Request`], [`Entry::at()`] and `status`.
//!
//! Not here: lines and their formats (`crate::log`).

use std::net::IpAddr;

use tollgate::{Request, Timestamp};

/// Which text of a request. A header is two of them: its name, and right behind it its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Slot {
    Method,
    Path,
    Query,
    Host,
    User,
    ApiKey,
    Tenant,
    Plan,
    HeaderName,
    HeaderValue,
}

/// Texts that a request has at most once.
const SINGLE: usize = Slot::HeaderName as usize;

/// A part of the text of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

/// One request of a log.
///
/// Owns its text in one buffer that is used again for the next: a log of a billion lines allocates for the longest.
///
/// ```
/// use tollgate::Request;
/// use tollgate_sim::Entry;
///
/// let mut entry = Entry::new(1_431_857_100_000_000, "GET", "/search?q=x");
/// entry.client = Some([203, 0, 113, 9].into());
/// entry.set_user("ada");
/// assert_eq!((entry.path(), entry.query(), entry.user()), ("/search", Some("q=x"), Some("ada")));
/// assert_eq!(entry.api_key(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// When, in microseconds since 1970.
    pub at: u64,
    /// Who called. A name that stands in the place of an address is an address of its own: see [`crate::log`].
    pub client: Option<IpAddr>,
    /// What it cost, where the log says so.
    pub cost: Option<u64>,
    /// What was answered then.
    pub status: Option<u16>,
    text: String,
    spans: [Option<Span>; SINGLE],
    headers: Vec<(Span, Span)>,
}

impl Entry {
    /// A request at a time, for a path with its query if it has one.
    pub fn new(at: u64, method: &str, target: &str) -> Self {
        let mut entry = Self { at, ..Self::default() };
        entry.put(Slot::Method, method);
        entry.set_target(target);
        entry
    }

    /// When.
    pub const fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at)
    }

    /// Forgets everything but the memory it has.
    pub fn clear(&mut self) {
        (self.at, self.client, self.cost, self.status) = (0, None, None, None);
        self.text.clear();
        self.spans = [None; SINGLE];
        self.headers.clear();
    }

    /// Calls with this method.
    pub fn set_method(&mut self, method: &str) {
        self.put(Slot::Method, method);
    }

    /// Asks for this path, with its query if it has one.
    pub fn set_target(&mut self, target: &str) {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        self.put(Slot::Path, path);
        self.spans[Slot::Query as usize] = None;
        if let Some(query) = query {
            self.put(Slot::Query, query);
        }
    }

    /// Asks this host.
    pub fn set_host(&mut self, host: &str) {
        self.put(Slot::Host, host);
    }

    /// Is logged in.
    pub fn set_user(&mut self, user: &str) {
        self.put(Slot::User, user);
    }

    /// Calls with this key.
    pub fn set_api_key(&mut self, api_key: &str) {
        self.put(Slot::ApiKey, api_key);
    }

    /// Belongs to this customer.
    pub fn set_tenant(&mut self, tenant: &str) {
        self.put(Slot::Tenant, tenant);
    }

    /// Is on this plan.
    pub fn set_plan(&mut self, plan: &str) {
        self.put(Slot::Plan, plan);
    }

    /// Has one more header; the name in lower case.
    pub fn add_header(&mut self, name: &str, value: &str) {
        self.put(Slot::HeaderName, name);
        self.put(Slot::HeaderValue, value);
    }

    /// One more text. A second one of its kind takes the place of the first, but for headers.
    pub(crate) fn put(&mut self, slot: Slot, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        let span = Span { start, end: self.text.len() };
        match slot {
            Slot::HeaderName => self.headers.push((span, Span { start: span.end, end: span.end })),
            Slot::HeaderValue => {
                if let Some((_, value)) = self.headers.last_mut() {
                    *value = span;
                }
            }
            _ => self.spans[slot as usize] = Some(span),
        }
    }

    fn text(&self, slot: Slot) -> Option<&str> {
        self.spans[slot as usize].map(|span| self.part(span))
    }

    fn part(&self, span: Span) -> &str {
        &self.text[span.start..span.end]
    }
}

impl Request for Entry {
    fn method(&self) -> &str {
        self.text(Slot::Method).unwrap_or_default()
    }

    fn path(&self) -> &str {
        self.text(Slot::Path).unwrap_or("/")
    }

    fn host(&self) -> Option<&str> {
        self.text(Slot::Host)
    }

    fn query(&self) -> Option<&str> {
        self.text(Slot::Query)
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_line(name, 0)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        let mut lines = self.headers.iter().filter(|(known, _)| self.part(*known) == name);
        lines.nth(index).map(|(_, value)| self.part(*value).as_bytes())
    }

    fn user(&self) -> Option<&str> {
        self.text(Slot::User)
    }

    fn api_key(&self) -> Option<&str> {
        self.text(Slot::ApiKey)
    }

    fn tenant(&self) -> Option<&str> {
        self.text(Slot::Tenant)
    }

    fn plan(&self) -> Option<&str> {
        self.text(Slot::Plan)
    }

    fn cost(&self) -> Option<u64> {
        self.cost
    }
}
