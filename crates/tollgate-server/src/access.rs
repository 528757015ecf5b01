//! Who may ask.
//!
//! On loopback everybody who can connect may. Elsewhere a secret is shown, as
//! `Authorization: Bearer` or as `Tollgate-Token`. Forward auth knows only the
//! latter: a proxy passes its client's `Authorization` on, which is no business
//! of ours.
//!
//! A page in the operator's browser can connect as well. Its own requests are known
//! by what browsers say of them; but the owner of a name can make it lead to
//! loopback while a page of that name is open (DNS rebinding), and such a page is
//! of this very host. So without a secret nobody is answered who asks by a name
//! that others can own.
//!
//! Whether somebody is alive or ready is no secret: health checks carry none.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::problem::Problem;
use crate::route::Route;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
pub(crate) static TOLLGATE_TOKEN: HeaderName = HeaderName::from_static("tollgate-token");

/// Who may ask.
///
/// ```
/// # use tollgate_server::Access;
/// let access = Access::token("correct horse battery staple");
/// assert_eq!(format!("{access:?}"), "Access(with a token)");
/// ```
#[derive(Clone)]
pub struct Access(Option<Box<[u8]>>);

impl Access {
    /// Whoever can connect: for loopback.
    pub const fn open() -> Self {
        Self(None)
    }

    /// Whoever shows this secret.
    pub fn token(secret: impl AsRef<[u8]>) -> Self {
        Self(Some(secret.as_ref().into()))
    }

    /// Whether a request to this route may be answered.
    pub(crate) fn check(&self, route: Option<&Route<'_>>, asked: &Parts) -> Result<(), Problem> {
        let headers = &asked.headers;
        match route {
            Some(Route::Health | Route::Ready) => return Ok(()),
            Some(Route::Auth) => {}
            _ => refuse_foreign_pages(headers, asked.uri.authority().map(Authority::as_str))?,
        }
        let is_auth = matches!(route, Some(Route::Auth));
        let Some(secret) = &self.0 else {
            return if is_auth { Ok(()) } else { refuse_foreign_names(asked) };
        };
        let own = headers.get(&TOLLGATE_TOKEN).map(HeaderValue::as_bytes);
        let bearer = if is_auth { None } else { headers.get(AUTHORIZATION).and_then(bearer) };
        if [own, bearer].into_iter().flatten().any(|shown| is_same(shown, secret)) {
            return Ok(());
        }
        Err(if is_auth {
            Problem::unauthorized("Tollgate-Token", "send the token of this server as `Tollgate-Token: ...`")
        } else {
            Problem::unauthorized(
                "Bearer",
                "send the token of this server as `Authorization: Bearer ...` or `Tollgate-Token: ...`",
            )
        })
    }
}

/// Says that there is a secret, and not which.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Access(with a token)" } else { "Access(open)" })
    }
}

fn bearer(header: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = header.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Takes as long for a guess that is nearly right as for one that is all wrong.
fn is_same(shown: &[u8], secret: &[u8]) -> bool {
    let mut differs = shown.len() ^ secret.len();
    for (at, byte) in secret.iter().enumerate() {
        differs |= usize::from(shown.get(at).copied().unwrap_or(0) ^ byte);
        // So that nobody stops at the first difference, not even the compiler.
        differs = std::hint::black_box(differs);
    }
    differs == 0
}

/// A page in the operator's browser can reach loopback too. Browsers say which
/// page asks, and only one of this very host may.
///
/// They do so in two ways: `Origin` names the page, and is missing where a page only
/// loads something; `Sec-Fetch-Site` is there then too. No page can write either.
fn refuse_foreign_pages(headers: &HeaderMap, authority: Option<&str>) -> Result<(), Problem> {
    if headers.get_all(&SEC_FETCH_SITE).iter().any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"))
    {
        return Err(Problem::forbidden(
            "pages of other sites may not ask: `Sec-Fetch-Site` is `cross-site`; ask from a program instead",
        ));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = Uri::try_from(origin.as_bytes()).ok();
    // HTTP/2 names the host in the request line.
    let host = headers.get(HOST).map_or(authority, |host| host.to_str().ok());
    match (origin.as_ref().and_then(Uri::authority), host) {
        (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(Problem::forbidden(
            "pages of other sites may not ask: the `Origin` is not this host; ask from a program instead",
        )),
    }
}

/// Without a secret, only names that nobody can make lead here: addresses, and `localhost`.
/// Whoever sends no name is no browser.
fn refuse_foreign_names(asked: &Parts) -> Result<(), Problem> {
    let named = asked.headers.get_all(HOST).iter().map(HeaderValue::to_str);
    let own = named
        .map(|host| host.is_ok_and(is_own_name))
        .chain(asked.uri.authority().map(|it| is_own_name(it.as_str())));
    if own.into_iter().all(|own| own) {
        return Ok(());
    }
    Err(Problem::forbidden(
        "without a token this server answers to no name but `localhost`, since a page could make any other lead \
         here: ask 127.0.0.1, or configure a token (`admin.token_file` or TOLLGATE_ADMIN_TOKEN)",
    ))
}

fn is_own_name(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'))
        });
    }
    let name = host.split_once(':').map_or(host, |(name, _port)| name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name.parse::<Ipv4Addr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_name_is_an_address_or_localhost() {
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
            assert_eq!(is_own_name(host), own, "{host}");
        }
    }

    #[test]
    fn only_the_secret_is_the_same() {
        for (shown, same) in
            [("secret", true), ("", false), ("secre", false), ("secret2", false), ("Secret", false)]
        {
            assert_eq!(is_same(shown.as_bytes(), b"secret"), same, "{shown}");
        }
    }
}
