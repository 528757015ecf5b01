//! The original request of the proxy's client, from the headers that describe it.
//!
//! Two families of headers are in use: `X-Original-*`, which nginx is configured to send, and
//! `X-Forwarded-*`, which Traefik and Caddy send by default. A proxy overwrites its own family and
//! forwards the other one, so a client can add the other one and name any request. The path therefore
//! selects the family (`/v1/auth/original`, `/v1/auth/forwarded`); if it does not and the families
//! disagree, the request is rejected.
//!
//! If the family and `Host` name different hosts, the limits of both apply. Naming another host can add
//! limits and not remove any.
//!
//! Invariant: a header that the proxy did not write cannot make `/v1/auth` decide about another
//! request. `tests/api/auth.rs` checks this.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use tollgate::Request;
use tollgate::policy::are_lookalikes;

use crate::body::quoted;
use crate::problem::Problem;

/// A family of headers that name the original request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `X-Original-URI`, `-URL`, `-Method`, `-Host`.
    Original,
    /// `X-Forwarded-Uri`, `-Method`, `-Host`.
    Forwarded,
}

impl Family {
    /// Parses the name of a family, as used in paths and queries.
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word {
            "original" => Some(Self::Original),
            "forwarded" => Some(Self::Forwarded),
            _ => None,
        }
    }
}

/// The request that one family names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedRequest<'h> {
    /// The path and query.
    target: Option<Cow<'h, str>>,
    method: Option<Cow<'h, str>>,
    host: Option<Cow<'h, str>>,
}

impl<'h> NamedRequest<'h> {
    /// Returns the request that the selected family names.
    pub(crate) fn of(headers: &'h HeaderMap, family: Option<Family>) -> Result<Self, Problem> {
        let named = match family {
            Some(Family::Original) => Self::by_original(headers)?,
            Some(Family::Forwarded) => Self::by_forwarded(headers)?,
            None => {
                let (original, forwarded) = (Self::by_original(headers)?, Self::by_forwarded(headers)?);
                match (original.says_something(), forwarded.says_something()) {
                    (true, true) if original != forwarded => return Err(ambiguous()),
                    (false, true) => forwarded,
                    _ => original,
                }
            }
        };
        if named.target.is_none() {
            return Err(missing(family));
        }
        Ok(named)
    }

    fn by_original(headers: &'h HeaderMap) -> Result<Self, Problem> {
        let uri =
            single(headers, "x-original-uri")?.map(|text| Target::of(text, "X-Original-URI")).transpose()?;
        let url =
            single(headers, "x-original-url")?.map(|text| Target::of(text, "X-Original-URL")).transpose()?;
        let method = single(headers, "x-original-method")?;
        let mut host = single(headers, "x-original-host")?;
        if let (Some(uri), Some(url)) = (&uri, &url)
            && uri.rest != url.rest
        {
            return Err(Problem::bad_request(
                "`X-Original-URI` and `X-Original-URL` name different requests: one of them is the client's; \
                 clear it in the proxy, in nginx with `proxy_set_header X-Original-URL \"\";`",
            ));
        }
        if host.is_none() {
            host = url.as_ref().and_then(|url| url.host.clone());
        }
        Ok(Self { target: uri.or(url).map(|target| target.rest), method, host })
    }

    fn by_forwarded(headers: &'h HeaderMap) -> Result<Self, Problem> {
        let uri = single(headers, "x-forwarded-uri")?
            .map(|text| Target::of(text, "X-Forwarded-Uri"))
            .transpose()?;
        let method = single(headers, "x-forwarded-method")?;
        // Each proxy in a chain may add a value; the last one is from the proxy that asks.
        let host = headers.get_all("x-forwarded-host").iter().next_back().and_then(text);
        Ok(Self { target: uri.map(|target| target.rest), method, host })
    }

    /// Whether the family names a request. A host alone does not, because many proxies send it beside
    /// the other family.
    fn says_something(&self) -> bool {
        self.target.is_some() || self.method.is_some()
    }
}

/// A path and query, with the host if the text is a URL.
struct Target<'h> {
    host: Option<Cow<'h, str>>,
    rest: Cow<'h, str>,
}

impl<'h> Target<'h> {
    fn of(text: Cow<'h, str>, header: &str) -> Result<Self, Problem> {
        // Browsers never send the fragment.
        let text = cut_at(text, '#');
        if text.starts_with('/') || text == "*" {
            return Ok(Self { host: None, rest: text });
        }
        let Some(at) = text.find("://") else {
            let text = quoted(&text);
            return Err(Problem::bad_request(format!(
                "`{header}` must be a path such as `/search?q=x`, not `{text}`"
            )));
        };
        let authority = &text[at + 3..];
        let (host, rest) = authority.split_at(authority.find(['/', '?']).unwrap_or(authority.len()));
        let host = host.rsplit_once('@').map_or(host, |(_user, host)| host);
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        Ok(Self {
            host: Some(host.to_owned()).filter(|it| !it.is_empty()).map(Cow::Owned),
            rest: rest.into(),
        })
    }
}

fn cut_at(text: Cow<'_, str>, end: char) -> Cow<'_, str> {
    match (text.find(end), text) {
        (None, text) => text,
        (Some(at), Cow::Borrowed(text)) => Cow::Borrowed(&text[..at]),
        (Some(at), Cow::Owned(mut text)) => {
            text.truncate(at);
            Cow::Owned(text)
        }
    }
}

/// Returns a header as text; `None` if it is empty.
fn text(line: &HeaderValue) -> Option<Cow<'_, str>> {
    let bytes = line.as_bytes().trim_ascii();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes))
}

/// Returns a header that may occur once. Of two different values, one is from the client.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<Cow<'h, str>>, Problem> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    if lines.any(|line| Some(line) != first) {
        return Err(Problem::bad_request(format!(
            "`{name}` comes twice and differs: let the proxy set it, and not add to what the client sent"
        )));
    }
    Ok(first.and_then(text))
}

fn missing(family: Option<Family>) -> Problem {
    Problem::bad_request(match family {
        Some(Family::Forwarded) => {
            "the original request is not named: let the proxy send `X-Forwarded-Uri` and \
             `X-Forwarded-Method`, as Traefik and Caddy do by themselves"
        }
        Some(Family::Original) | None => {
            "the original request is not named: let the proxy send its path and query, in nginx with \
             `proxy_set_header X-Original-URI $request_uri;` and \
             `proxy_set_header X-Original-Method $request_method;`"
        }
    })
}

fn ambiguous() -> Problem {
    Problem::bad_request(
        "`X-Original-*` and `X-Forwarded-*` name different requests, and one of them may be the client's: \
         say which the proxy writes, with `/v1/auth/original` (nginx) or `/v1/auth/forwarded` (Traefik, Caddy)",
    )
}

/// The original request, as a policy sees it.
pub(crate) struct Original<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    host: Option<&'a str>,
    headers: &'a HeaderMap,
    client: IpAddr,
}

impl<'a> Original<'a> {
    pub(crate) fn new(
        named: &'a NamedRequest<'_>,
        parts: &'a Parts,
        client: IpAddr,
    ) -> Result<Self, Problem> {
        let target = named.target.as_deref().unwrap_or("/");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        // A proxy that keeps the method may omit this header.
        let method = named.method.as_deref().unwrap_or(parts.method.as_str());
        if http::Method::from_bytes(method.as_bytes()).is_err() {
            let method = quoted(method);
            return Err(Problem::bad_request(format!(
                "the original method is not a valid method: `{method}`"
            )));
        }
        Ok(Self { method, path, query, host: named.host.as_deref(), headers: &parts.headers, client })
    }

    fn header_host(&self) -> Option<&'a str> {
        self.headers.get(HOST).and_then(|host| host.to_str().ok())
    }
}

/// Whether the proxy wrote this header for Tollgate, so that it is not part of the original request.
fn is_between_us(name: &str) -> bool {
    name.starts_with("x-original-")
        || matches!(name, "x-forwarded-uri" | "x-forwarded-method" | "tollgate-token")
}

impl Request for Original<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn host(&self) -> Option<&str> {
        self.host.or_else(|| self.header_host())
    }

    fn other_host(&self) -> Option<&str> {
        self.host.and(self.header_host())
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.client)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_line(name, 0)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        if is_between_us(name) {
            return None;
        }
        self.headers.get_all(name).iter().nth(index).map(HeaderValue::as_bytes)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        if !is_between_us(name) {
            self.headers.get_all(name).iter().for_each(|line| visit(line.as_bytes()));
        }
    }

    /// The proxy forwards such headers too, unless it removes them as nginx does.
    fn visit_lookalikes<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        let lines = self.headers.iter().filter(|(known, _)| are_lookalikes(known.as_str(), name));
        lines.for_each(|(_, line)| visit(line.as_bytes()));
    }
}
