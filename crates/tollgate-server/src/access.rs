//! Authorization: which callers may use which routes.
//!
//! On loopback, every caller that can connect may do everything. Elsewhere a caller presents a token,
//! as `Authorization: Bearer` or as `Tollgate-Token`, or a verified certificate. Forward auth accepts
//! only `Tollgate-Token`, because a proxy forwards its client's `Authorization`, which belongs to the
//! upstream. The reader token permits reads, the admin token everything; `Route::needs` returns the
//! required role.
//!
//! A web page in the operator's browser can also connect. Cross-site requests are recognized by the
//! headers that browsers add. With DNS rebinding, however, the owner of a domain can point its name to
//! loopback while a page of that name is open, and that page is same-origin. Without a token, the
//! server therefore answers only to hosts that are addresses or `localhost`.
//!
//! Liveness and readiness need no token, because health checks carry none. The reasons of failures are
//! shown only to readers. The files of the dashboard contain no data.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Uri};
use serde::{Deserialize, Serialize};
use tollgate_http::HeaderLines;

use crate::body::is_json;
use crate::problem::Problem;
use crate::route::Route;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub(crate) static TOLLGATE_TOKEN: HeaderName = HeaderName::from_static("tollgate-token");

/// The permissions of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May read.
    Reader,
    /// May read and change everything.
    Admin,
}

impl Role {
    /// Returns the word for the role in JSON.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Admin => "admin",
        }
    }
}

/// The caller of a request, as far as the connection identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The peer address of the connection.
    pub peer: IpAddr,
    /// Whether the peer presented a verified certificate. Such a peer has the admin role.
    pub certified: bool,
    /// The subject of that certificate.
    pub certificate: Option<Arc<str>>,
}

impl From<IpAddr> for Caller {
    fn from(peer: IpAddr) -> Self {
        Self { peer, certified: false, certificate: None }
    }
}

/// Decides which callers may use which routes.
///
/// ```
/// # use tollgate_server::Access;
/// let access = Access::token("correct horse").with_reader("battery staple");
/// assert_eq!(format!("{access:?}"), "Access(with a token)");
/// ```
#[derive(Clone)]
pub struct Access(Option<Tokens>);

#[derive(Clone, Default)]
struct Tokens {
    admin: Option<Box<[u8]>>,
    reader: Option<Box<[u8]>>,
}

impl Access {
    /// Grants everything to every caller that can connect. For loopback only.
    pub const fn open() -> Self {
        Self(None)
    }

    /// Grants access only to callers with a certificate, and with the tokens of
    /// [`with_admin`](Self::with_admin) and [`with_reader`](Self::with_reader).
    pub const fn guarded() -> Self {
        Self(Some(Tokens { admin: None, reader: None }))
    }

    /// Grants everything to callers that present this token.
    pub fn token(secret: impl AsRef<[u8]>) -> Self {
        Self::guarded().with_admin(secret)
    }

    /// Adds a token that grants everything. An empty token grants nothing.
    #[must_use]
    pub fn with_admin(self, secret: impl AsRef<[u8]>) -> Self {
        Self(Some(Tokens { admin: kept(secret.as_ref()), ..self.0.unwrap_or_default() }))
    }

    /// Adds a token that grants reads. An empty token grants nothing.
    #[must_use]
    pub fn with_reader(self, secret: impl AsRef<[u8]>) -> Self {
        Self(Some(Tokens { reader: kept(secret.as_ref()), ..self.0.unwrap_or_default() }))
    }

    /// Returns the role of the caller, if it is sufficient for this route.
    pub(crate) fn check(
        &self,
        route: Option<&Route<'_>>,
        parts: &Parts,
        caller: &Caller,
    ) -> Result<Role, Problem> {
        let headers = &parts.headers;
        match route {
            Some(Route::Health | Route::Alive | Route::Ready) => return Ok(Role::Reader),
            // Any site may link to the dashboard.
            Some(Route::Auth(_) | Route::Index) => {}
            _ => refuse_foreign_pages(parts)?,
        }
        let is_auth = matches!(route, Some(Route::Auth(_)));
        let Some(tokens) = &self.0 else {
            return if is_auth { Ok(Role::Admin) } else { refuse_foreign_names(parts).map(|()| Role::Admin) };
        };
        if matches!(route, Some(Route::Index | Route::Page(_) | Route::Book(_))) {
            return Ok(Role::Reader);
        }
        let own = headers.get(&TOLLGATE_TOKEN).map(HeaderValue::as_bytes);
        let authorization = headers.get(AUTHORIZATION).filter(|_| !is_auth);
        let bearer = authorization.map(HeaderValue::as_bytes).and_then(bearer_token);
        let role = if caller.certified { Some(Role::Admin) } else { tokens.role_of([own, bearer]) };
        let needed = route.map_or(Role::Reader, |route| route.needs(&parts.method));
        match role {
            Some(role) if role >= needed => Ok(role),
            Some(_) => Err(Problem::forbidden(
                "this token may only look, and this takes the admin token: `admin.token_file` or \
                 TOLLGATE_ADMIN_TOKEN of the server",
            )),
            None if is_auth => Err(Problem::unauthorized(
                "Tollgate-Token",
                "send the admin token of this server as `Tollgate-Token: ...`",
            )),
            None => Err(Problem::unauthorized(
                "Bearer",
                "send the token of this server as `Authorization: Bearer ...` or `Tollgate-Token: ...`",
            )),
        }
    }

    /// Whether a program with these headers certainly has the admin role. A request of a browser never has: `false` is
    /// not a refusal, and [`check`](Self::check) decides.
    pub(crate) fn is_admin_program(&self, host: &str, headers: &impl HeaderLines, caller: &Caller) -> bool {
        if headers.first_line("origin").is_some() || headers.first_line("sec-fetch-site").is_some() {
            return false;
        }
        let Some(tokens) = &self.0 else { return is_own_name(host) };
        let own = headers.first_line("tollgate-token");
        let bearer = headers.first_line("authorization").and_then(bearer_token);
        caller.certified || tokens.role_of([own, bearer]) == Some(Role::Admin)
    }

    /// Whether the caller may read details that are not public.
    pub(crate) fn may_read(&self, parts: &Parts, caller: &Caller) -> bool {
        self.check(Some(&Route::Overview), parts, caller).is_ok()
    }
}

impl Tokens {
    /// Returns the role of the presented tokens. Compares every pair, so that the time does not depend
    /// on which one matches.
    fn role_of(&self, shown: [Option<&[u8]>; 2]) -> Option<Role> {
        let opens = |secret: &Option<Box<[u8]>>| {
            let secret = secret.as_deref();
            shown.iter().fold(false, |found, shown| {
                found | shown.zip(secret).is_some_and(|(shown, secret)| is_same(shown, secret))
            })
        };
        let (admin, reader) = (opens(&self.admin), opens(&self.reader));
        if admin { Some(Role::Admin) } else { reader.then_some(Role::Reader) }
    }
}

fn kept(secret: &[u8]) -> Option<Box<[u8]>> {
    if secret.is_empty() { None } else { Some(secret.into()) }
}

/// Shows whether a token is required, and never the token.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            None => "Access(open)",
            Some(Tokens { admin: None, reader: None }) => "Access(with a certificate)",
            Some(_) => "Access(with a token)",
        })
    }
}

fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in constant time with respect to the content.
fn is_same(shown: &[u8], secret: &[u8]) -> bool {
    let mut differs = shown.len() ^ secret.len();
    for (at, byte) in secret.iter().enumerate() {
        differs |= usize::from(shown.get(at).copied().unwrap_or(0) ^ byte);
        // Keeps the compiler from returning at the first difference.
        differs = std::hint::black_box(differs);
    }
    differs == 0
}

/// Refuses requests of web pages from other origins.
///
/// Browsers mark such requests in two ways: `Origin` names the page and is absent when a page only
/// loads a resource; `Sec-Fetch-Site` is present in both cases. A page cannot forge either. Another
/// port of this host, or another name of this domain, is a different origin (`same-site`).
///
/// A request that changes something must also have a JSON content type: a page cannot send that to
/// another origin without a CORS preflight, which this server does not grant.
fn refuse_foreign_pages(parts: &Parts) -> Result<(), Problem> {
    let headers = &parts.headers;
    let mut sites = headers.get_all(&SEC_FETCH_SITE).iter().map(HeaderValue::as_bytes);
    let is_own =
        |site: &[u8]| [&b"same-origin"[..], b"none"].iter().any(|own| own.eq_ignore_ascii_case(site));
    if !sites.all(is_own) {
        return Err(Problem::forbidden(
            "pages of other sites may not ask: `Sec-Fetch-Site` is not `same-origin`; ask from a program instead",
        ));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = Uri::try_from(origin.as_bytes()).ok();
        // HTTP/2 names the host in the request target.
        let authority = parts.uri.authority().map(Authority::as_str);
        let host = headers.get(HOST).map_or(authority, |host| host.to_str().ok());
        let own = origin.as_ref().and_then(Uri::authority).zip(host);
        if !own.is_some_and(|(origin, host)| origin.as_str().eq_ignore_ascii_case(host)) {
            return Err(Problem::forbidden(
                "pages of other sites may not ask: the `Origin` is not this host; ask from a program instead",
            ));
        }
    }
    let is_of_browser = headers.contains_key(ORIGIN) || headers.contains_key(&SEC_FETCH_SITE);
    let changes = !matches!(parts.method, Method::GET | Method::HEAD);
    if is_of_browser && changes && !headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(Problem::wrong_type_of_page());
    }
    Ok(())
}

/// Without a token, refuses hosts other than addresses and `localhost`, because DNS can point any other
/// name here. A request without a host does not come from a browser.
fn refuse_foreign_names(parts: &Parts) -> Result<(), Problem> {
    let named = parts.headers.get_all(HOST).iter().map(HeaderValue::to_str);
    let own = named
        .map(|host| host.is_ok_and(is_own_name))
        .chain(parts.uri.authority().map(|it| is_own_name(it.as_str())));
    if own.into_iter().all(|own| own) {
        return Ok(());
    }
    Err(Problem::forbidden(
        "without a token this server answers to no name but `localhost`, since a page could make any other lead \
         here: ask 127.0.0.1, or configure a token (`admin.token_file` or TOLLGATE_ADMIN_TOKEN)",
    ))
}

/// Names with this suffix always resolve to loopback (RFC 6761, section 6.3).
const LOCAL: &str = ".localhost";

thread_local! {
    /// The last host that was an own name. Almost all requests have the same one.
    static LAST_OWN_NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The maximum length of a host that is remembered: a name of the DNS, a port and more.
const MAX_REMEMBERED_BYTES: usize = 300;

fn is_own_name(host: &str) -> bool {
    LAST_OWN_NAME.with_borrow_mut(|last| {
        // The empty host is not an own name.
        if !host.is_empty() && *last == host {
            return true;
        }
        let is_own = parse_own_name(host);
        if is_own && host.len() <= MAX_REMEMBERED_BYTES {
            last.clear();
            last.push_str(host);
        }
        is_own
    })
}

/// Whether a host is an address, `localhost` or a name below it, with any port.
fn parse_own_name(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'))
        });
    }
    // Hosts are short: a plain loop beats a search that is optimized for long texts.
    let name = host.bytes().position(|byte| byte == b':').map_or(host, |end| &host[..end]);
    let name = name.strip_suffix('.').unwrap_or(name);
    let end = name.len().checked_sub(LOCAL.len()).and_then(|at| name.get(at..));
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || end.is_some_and(|end| end.eq_ignore_ascii_case(LOCAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_own_names() {
        for (host, own) in [
            ("127.0.0.1:7070", true),
            ("10.1.2.3", true),
            ("[::1]:7070", true),
            ("[::1]", true),
            ("localhost:7070", true),
            ("LocalHost.", true),
            ("tollgate.localhost", true),
            ("evil.test:7070", false),
            ("localhost.evil.test", false),
            ("notlocalhost", false),
            ("127.0.0.1.evil.test", false),
            ("127.1", false),
            ("[::1].evil.test", false),
            ("[evil.test]", false),
            ("x@127.0.0.1", false),
            ("", false),
        ] {
            // The second answer may be remembered.
            assert_eq!((is_own_name(host), is_own_name(host)), (own, own), "{host}");
        }
    }

    #[test]
    fn only_the_exact_secret_matches() {
        for (shown, same) in
            [("secret", true), ("", false), ("secre", false), ("secret2", false), ("Secret", false)]
        {
            assert_eq!(is_same(shown.as_bytes(), b"secret"), same, "{shown}");
        }
    }
}
