//! A request of a log, as a policy sees it.
//!
//! To create requests: `Entry::new(at, "GET", "/path?query")`, then set `client`, `cost` and `status`, and call
//! `set_user`. To read them: [`Request`], [`Entry::at()`] and `status`.
//!
//! Not here: lines and their formats (`crate::log`).

use std::net::IpAddr;

use tollgate::{Request, Timestamp};

/// The field that a text belongs to. A header takes two texts: its name, followed by its value.
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

/// Number of fields that a request has at most once.
const SINGLE: usize = Slot::HeaderName as usize;

/// A byte range in the text buffer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

/// A request of a log.
///
/// All text is in one buffer that the next request reuses, so reading a log allocates only for its longest request.
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
    /// Time of the request, in microseconds since 1970.
    pub at: u64,
    /// Address of the client. A host name in place of an address is mapped to an address: see [`crate::log`].
    pub client: Option<IpAddr>,
    /// Cost in units, if the log states it.
    pub cost: Option<u64>,
    /// Status code of the response, if the log states it.
    pub status: Option<u16>,
    text: String,
    spans: [Option<Span>; SINGLE],
    headers: Vec<(Span, Span)>,
}

impl Entry {
    /// Creates a request at a time, in microseconds since 1970, for a path with an optional query.
    pub fn new(at: u64, method: &str, target: &str) -> Self {
        let mut entry = Self { at, ..Self::default() };
        entry.put(Slot::Method, method);
        entry.set_target(target);
        entry
    }

    /// Returns the time of the request.
    pub const fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.at)
    }

    /// Removes all values and keeps the allocated memory.
    pub fn clear(&mut self) {
        (self.at, self.client, self.cost, self.status) = (0, None, None, None);
        self.text.clear();
        self.spans = [None; SINGLE];
        self.headers.clear();
    }

    /// Sets the path, and the query if the target has one.
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

    /// Sets the user.
    pub fn set_user(&mut self, user: &str) {
        self.put(Slot::User, user);
    }

    /// Stores a text. A second text of the same field replaces the first, except for headers.
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
