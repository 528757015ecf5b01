//! What the one who set up the proxy wishes: the query of `/v1/auth`.
//!
//! An unknown wish is a mistake and not ignored: `?header=original`, taken for
//! nothing, would leave open what it was meant to close.

use http::StatusCode;

use super::Family;
use crate::body::quoted;
use crate::problem::Problem;
use crate::query::Query;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The status of a refusal, for proxies that understand only some.
    pub(crate) deny: Option<StatusCode>,
    /// Whose headers name the original request.
    pub(crate) family: Option<Family>,
}

impl Wishes {
    pub(crate) fn of(query: Option<&str>) -> Result<Self, Problem> {
        let query = Query::of(query, &["deny", "headers"])?;
        Ok(Self {
            deny: query.one("deny")?.map(status).transpose()?,
            family: query.one("headers")?.map(family).transpose()?,
        })
    }
}

fn status(value: &str) -> Result<StatusCode, Problem> {
    let digits = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    let status = if digits { value.parse().ok().and_then(|it| StatusCode::from_u16(it).ok()) } else { None };
    status.filter(StatusCode::is_client_error).ok_or_else(|| {
        let value = quoted(value);
        Problem::bad_request(format!(
            "`deny` must be a status from 400 to 499, such as `deny=403`, not `{value}`"
        ))
    })
}

fn family(value: &str) -> Result<Family, Problem> {
    match value {
        "original" => Ok(Family::Original),
        "forwarded" => Ok(Family::Forwarded),
        _ => Err(Problem::bad_request(format!(
            "`headers` must be `original` (X-Original-URI, as nginx is told to send) or `forwarded` \
             (X-Forwarded-Uri, as Traefik and Caddy send), not `{}`",
            quoted(value)
        ))),
    }
}
