//! The header family and the refusal status that a proxy is configured with, from the path of forward
//! auth.
//!
//! `/v1/auth/original/403` sets both. The query of this path is ignored, because proxies such as Caddy
//! append the client's query to it.
//!
//! `/v1/auth` takes both from its query, unless that is the query of the original request. A proxy that
//! appends the client's query also names that query in the original request, so a query that appears in
//! both belongs to the client and is ignored: the header families must then agree, as without a query.
//! In any other query, an unknown parameter is an error: ignoring `?header=original` would silently
//! disable the protection that it was meant to enable.

use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::Family;
use crate::body::quoted;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::AuthPath;

/// Headers that contain the original request target with its query.
const TARGETS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuthOptions {
    /// The status of a refusal, for proxies that support only some.
    pub(crate) deny: Option<StatusCode>,
    /// The header family that names the original request.
    pub(crate) family: Option<Family>,
}

impl AuthOptions {
    pub(crate) fn of(path: Option<AuthPath<'_>>, parts: &Parts) -> Result<Self, Problem> {
        match (path, parts.uri.query()) {
            (Some(path), _) => Self::of_path(path),
            (None, Some(query)) if !is_of_client(query, &parts.headers) => Self::of_query(query),
            (None, _) => Ok(Self::default()),
        }
    }

    fn of_path(path: AuthPath<'_>) -> Result<Self, Problem> {
        let deny = path.status.map(|value| {
            status(value).ok_or_else(|| {
                let value = quoted(value);
                Problem::bad_request(format!(
                    "the path must end in a status from 400 to 499, such as `/v1/auth/original/403`, not in `{value}`"
                ))
            })
        });
        Ok(Self { deny: deny.transpose()?, family: Some(path.family) })
    }

    fn of_query(query: &str) -> Result<Self, Problem> {
        let query = Query::of(Some(query), &["deny", "headers"])?;
        let deny = query.one("deny")?.map(|value| {
            status(value).ok_or_else(|| {
                let value = quoted(value);
                Problem::bad_request(format!(
                    "`deny` must be a status from 400 to 499, such as `deny=403`, not `{value}`"
                ))
            })
        });
        let family = query.one("headers")?.map(|value| {
            Family::of(value).ok_or_else(|| {
                Problem::bad_request(format!(
                    "`headers` must be `original` (X-Original-URI, as nginx is told to send) or `forwarded` \
                     (X-Forwarded-Uri, as Traefik and Caddy send), not `{}`",
                    quoted(value)
                ))
            })
        });
        Ok(Self { deny: deny.transpose()?, family: family.transpose()? })
    }
}

/// Whether a query is that of the original request, by any header that contains it.
fn is_of_client(query: &str, headers: &HeaderMap) -> bool {
    let targets = TARGETS.iter().flat_map(|name| headers.get_all(*name));
    let mut queries = targets.filter_map(|target| {
        let target = target.as_bytes().trim_ascii();
        let at = target.iter().position(|&byte| byte == b'?')?;
        let end = target.iter().position(|&byte| byte == b'#').unwrap_or(target.len());
        target.get(at + 1..end)
    });
    !query.is_empty() && queries.any(|it| it == query.as_bytes())
}

fn status(value: &str) -> Option<StatusCode> {
    let digits = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    let status = if digits { value.parse().ok().and_then(|it| StatusCode::from_u16(it).ok()) } else { None };
    status.filter(StatusCode::is_client_error)
}
