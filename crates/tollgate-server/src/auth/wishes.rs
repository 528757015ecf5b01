//! What the one who set up the proxy wishes: the query of `/v1/auth`.
//!
//! An unknown wish is a mistake and not ignored: `?header=original`, taken for
//! nothing, would leave open what it was meant to close.

use http::StatusCode;
use tollgate::policy::nearest;

use super::Family;
use crate::body::quoted;
use crate::problem::Problem;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The status of a refusal, for proxies that understand only some.
    pub(crate) deny: Option<StatusCode>,
    /// Whose headers name the original request.
    pub(crate) family: Option<Family>,
}

impl Wishes {
    pub(crate) fn of(query: Option<&str>) -> Result<Self, Problem> {
        let mut wishes = Self::default();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_second = match name {
                "deny" => wishes.deny.replace(status(value)?).is_some(),
                "headers" => wishes.family.replace(family(value)?).is_some(),
                unknown => return Err(unknown_wish(unknown)),
            };
            if is_second {
                return Err(Problem::bad_request(format!("`{name}` is given twice; give it once")));
            }
        }
        Ok(wishes)
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

fn unknown_wish(name: &str) -> Problem {
    let meant = nearest(name, ["deny", "headers"]);
    let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    Problem::bad_request(format!(
        "unknown parameter `{}`; {meant}there are `deny` and `headers`",
        quoted(name)
    ))
}
