//! Parses the request of a step and its caller, with defaults.

use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollgate_document::{Fields, Node, Problems, Synonyms};

use super::step::MAX_COST;
use crate::request::{From, Places, RequestKind, TestRequest};

pub(super) const WORDS: [&str; 10] =
    ["host", "ip", "peer", "user", "api_key", "tenant", "plan", "claims", "headers", "cost"];
pub(super) const SYNONYMS: Synonyms =
    &[("ip", &["remote_addr", "client", "client_ip"]), ("user", &["user_id"]), ("api_key", &["key"])];

/// In this domain, descriptors describe HTTP requests.
const RESERVED_DOMAIN: &str = "tollgate";

/// The caller of a step, or the defaults of all steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    host: Option<HeaderValue>,
    from: Option<From>,
    user: Option<String>,
    api_key: Option<String>,
    tenant: Option<String>,
    plan: Option<String>,
    claims: Vec<(String, String)>,
    headers: HeaderMap,
    cost: Option<u64>,
    places: Places,
}

impl Caller {
    pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Self {
        let mut word = |word: &str| {
            let value = fields.get(word)?.word(&format!("`{word}`"), problems)?;
            Some(value.value.to_owned())
        };
        let (user, api_key, tenant, plan) = (word("user"), word("api_key"), word("tenant"), word("plan"));
        let mut who = Self { user, api_key, tenant, plan, ..Self::default() };
        let place = |word: &str| fields.get(word).map(|node| node.place);
        who.places = Places { plan: place("plan"), claims: place("claims") };
        who.host = fields.get("host").and_then(|it| header_value(it, "`host`", problems));
        who.from = from(fields, problems);
        who.claims = fields.get("claims").map_or_else(Vec::new, |it| claims(it, problems));
        who.headers = fields.get("headers").map_or_else(HeaderMap::new, |it| headers(it, problems));
        let cost = fields.get("cost").and_then(|it| it.whole("`cost`", 0..=MAX_COST, problems));
        who.cost = cost.map(|it| it.value);
        who
    }

    /// Fills in missing values from defaults. Headers and claims are merged by name.
    pub(super) fn over(self, other: &Self) -> Self {
        let mut claims = self.claims;
        for (name, value) in &other.claims {
            if claims.iter().all(|(known, _)| known != name) {
                claims.push((name.clone(), value.clone()));
            }
        }
        let mut headers = other.headers.clone();
        for name in self.headers.keys() {
            headers.remove(name);
            for value in self.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        Self {
            host: self.host.or_else(|| other.host.clone()),
            from: self.from.or(other.from),
            user: self.user.or_else(|| other.user.clone()),
            api_key: self.api_key.or_else(|| other.api_key.clone()),
            tenant: self.tenant.or_else(|| other.tenant.clone()),
            plan: self.plan.or_else(|| other.plan.clone()),
            claims,
            headers,
            cost: self.cost.or(other.cost),
            places: Places {
                plan: self.places.plan.or(other.places.plan),
                claims: self.places.claims.or(other.places.claims),
            },
        }
    }

    /// Combines the caller with a request that gets these headers.
    pub(super) fn asking(self, what: impl FnOnce(HeaderMap) -> RequestKind) -> TestRequest {
        let mut headers = self.headers;
        if let Some(host) = self.host {
            headers.insert(HOST, host);
        }
        TestRequest {
            what: what(headers),
            from: self.from.unwrap_or(From::Nowhere),
            user: self.user,
            api_key: self.api_key,
            tenant: self.tenant,
            plan: self.plan,
            claims: self.claims,
            cost: self.cost,
            places: self.places,
        }
    }
}

fn from(fields: &Fields<'_>, problems: &mut Problems) -> Option<From> {
    match (fields.get("ip"), fields.get("peer")) {
        (Some(ip), Some(peer)) => {
            problems
                .error(
                    peer.place,
                    "`ip` is the resolved client; `peer` is the connection, from which the policy resolves the client",
                )
                .related(ip.place, "one of the two")
                .help("use `ip`, unless the test is about `trusted_proxies`");
            None
        }
        (Some(ip), None) => address(ip, "`ip`", problems).map(From::Client),
        (None, Some(peer)) => address(peer, "`peer`", problems).map(From::Peer),
        (None, None) => None,
    }
}

fn address(node: &Node, what: &str, problems: &mut Problems) -> Option<IpAddr> {
    let word = node.word(what, problems)?;
    let address = word.value.parse().ok();
    if address.is_none() {
        problems
            .error(node.place, format!("{what} is an address"))
            .label(format!("{} is not", node.describe()))
            .help("for example: 203.0.113.9 or 2001:db8::1");
    }
    address
}

fn claims(node: &Node, problems: &mut Problems) -> Vec<(String, String)> {
    let entries = node.entries("`claims`", problems).unwrap_or_default();
    let claim = |name: &str, value: &Node, problems: &mut Problems| {
        let word = value.word(&format!("the claim `{name}`"), problems)?;
        Some((name.to_owned(), word.value.to_owned()))
    };
    entries.iter().filter_map(|entry| claim(&entry.name.value, &entry.value, problems)).collect()
}

fn headers(node: &Node, problems: &mut Problems) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for entry in node.entries("`headers`", problems).unwrap_or_default() {
        let Ok(name) = HeaderName::try_from(&entry.name.value) else {
            problems
                .error(entry.name.place, "no header can have this name")
                .label("letters, digits and !#$%&'*+-.^_`|~ only");
            continue;
        };
        if name == HOST {
            problems
                .error(entry.name.place, "the host has a word of its own")
                .label("write `host` beside `request`");
            continue;
        }
        for line in entry.value.items() {
            if let Some(value) = header_value(line, &format!("the header `{name}`"), problems) {
                headers.append(&name, value);
            }
        }
    }
    headers
}

fn header_value(node: &Node, what: &str, problems: &mut Problems) -> Option<HeaderValue> {
    let word = node.word(what, problems)?;
    let value = HeaderValue::from_str(word.value).ok();
    if value.is_none() {
        problems.error(node.place, format!("{what} cannot have this value")).label("visible characters only");
    }
    value
}

/// Parses a request line such as `POST /login?next=/`.
pub(super) fn request_line(node: &Node, problems: &mut Problems) -> Option<(Method, Uri)> {
    const HELP: &str = "a method and a path: GET /api/v1/search?q=x";
    let word = node.word("`request`", problems)?;
    let words: Vec<&str> = word.value.split_whitespace().collect();
    let [method, target] = words[..] else {
        let problem = problems.error(node.place, "a request is a method and a path");
        if let [path] = words[..]
            && path.starts_with('/')
        {
            problem.label(format!("did you mean `GET {path}`?"));
        }
        problem.help(HELP);
        return None;
    };
    let Some(known) = Method::from_bytes(method.as_bytes()).ok().filter(|_| !method.starts_with('/')) else {
        problems.error(node.place, format!("`{method}` is not a method")).help(HELP);
        return None;
    };
    if method.bytes().any(|it| it.is_ascii_lowercase()) {
        problems
            .error(node.place, "methods are written in capitals")
            .label(format!("did you mean `{} {target}`?", method.to_ascii_uppercase()));
        return None;
    }
    let uri = Uri::try_from(target).ok().filter(|uri| uri.path().starts_with('/'));
    if uri.is_none() {
        problems.error(node.place, format!("no request can be for `{target}`")).help(HELP);
    }
    Some((known, uri?))
}

/// Creates the head of a request.
pub(super) fn head((method, uri): (Method, Uri), headers: HeaderMap) -> Parts {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, headers);
    parts
}

/// Parses descriptor entries: `plan=gold`, one or a list.
pub(super) fn entries(node: &Node, problems: &mut Problems) -> Option<Vec<(String, String)>> {
    let entry = |item: &Node| {
        let word = item.word("an entry", problems)?;
        let Some((key, value)) = word.value.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            problems
                .error(item.place, "an entry of a descriptor has a value")
                .label(format!("did you mean `{}=…`?", word.value));
            return None;
        };
        Some((key.to_owned(), value.to_owned()))
    };
    let entries: Vec<_> = node.items().iter().map(entry).collect();
    if entries.is_empty() {
        problems.error(node.place, "`descriptor` is empty").help("for example: [plan=gold, user=ann]");
        return None;
    }
    entries.into_iter().collect()
}

pub(super) fn domain(node: &Node, problems: &mut Problems) -> Option<String> {
    let word = node.word("`domain`", problems)?;
    if word.value == RESERVED_DOMAIN {
        problems
            .error(node.place, "in the domain `tollgate` descriptors describe requests")
            .label("write the request itself")
            .help("for example: {request: POST /api/v1/login, ip: 203.0.113.9}");
        return None;
    }
    Some(word.value.to_owned())
}
