//! Endpoints where passwords and codes are tried, and who may try how often.
//!
//! A limit by address alone stops one machine and not a thousand; one by account alone stops
//! a thousand tries of one account and not one try of each. It takes both. Only endpoints that
//! the file names are looked at: what else a service has is not known here.

use std::collections::HashSet;

use super::cover::covers_path;
use super::promise::a_second;
use super::{MOST_PAIRS, Seen};
use crate::diagnostic::{Place, Problems};
use crate::pattern::{PathPattern, Segment};
use crate::source::KeySource;
use crate::trap::Trap;

/// Segments of paths, in lower case and without `-`, `_` and `.`.
const TRIED: [&str; 21] = [
    "login",
    "logon",
    "signin",
    "signup",
    "register",
    "registration",
    "password",
    "passwd",
    "resetpassword",
    "passwordreset",
    "forgotpassword",
    "forgottenpassword",
    "changepassword",
    "recoverpassword",
    "otp",
    "totp",
    "mfa",
    "2fa",
    "verifyotp",
    "verifycode",
    "magiclink",
];
/// What only the last segment says.
const LAST: [&str; 1] = ["token"];

pub(super) fn look(seen: &[Seen<'_>], problems: &mut Problems) {
    let mut told = HashSet::new();
    for limit in seen.iter().filter(|it| it.is_on()) {
        for endpoint in limit.written.endpoint.iter().filter(|it| is_tried(&it.value)) {
            if told.len() < MOST_PAIRS / seen.len() && told.insert(endpoint.value.segments.clone()) {
                tell(&endpoint.value, endpoint.place, seen, problems);
            }
        }
    }
}

fn is_tried(pattern: &PathPattern) -> bool {
    let bare = |text: &str| -> String {
        text.chars().filter(|it| !"-_.".contains(*it)).flat_map(char::to_lowercase).collect()
    };
    let last = pattern.segments.len().saturating_sub(1);
    !pattern.tail
        && pattern.segments.iter().enumerate().any(|(at, segment)| match segment {
            Segment::Literal(text) => {
                let text = bare(text);
                TRIED.contains(&&*text) || (at == last && LAST.contains(&&*text))
            }
            Segment::One(_) => false,
        })
}

fn tell(endpoint: &PathPattern, place: Place, seen: &[Seen<'_>], problems: &mut Problems) {
    let on: Vec<&Seen<'_>> = seen.iter().filter(|it| it.is_on() && is_for(it, endpoint)).collect();
    let by_address = on.iter().any(|it| it.live.by() == [KeySource::Ip]);
    let by_account = on.iter().any(|it| matches!(it.live.by(), [only] if is_account(only)));
    let (missing, what, add) = match (by_address, by_account) {
        (true, true) => return,
        (true, false) => ("account", "many machines may try one account as often as they like", "by: user"),
        (false, true) => ("address", "one machine may try every account there is", "by: ip"),
        (false, false) => {
            ("address and none by account", "one machine may try every account there is", "by: ip")
        }
    };
    problems
        .warning(Trap::LoginUnlimited, place, format!("no limit by {missing} where something is guessed"))
        .label(what)
        .help(format!("add one for `{endpoint}` alone: `{add}` with `bucket: 5/minute`, say"))
        .help("a key of several parts (`by: [ip, user]`) is neither: each pair begins anew");
}

/// Whether a limit is meant for this endpoint: one for everything counts if it is as narrow as
/// one for passwords would be, one a second.
fn is_for(limit: &Seen<'_>, endpoint: &PathPattern) -> bool {
    let covering = limit.live.endpoints().iter().find(|it| covers_path(it, endpoint));
    covering.is_some_and(|it| {
        let is_everything = it.tail && it.segments.is_empty();
        !is_everything || a_second(limit.live.rules()).is_some_and(|pace| pace <= 1)
    })
}

fn is_account(part: &KeySource) -> bool {
    !matches!(part, KeySource::Ip | KeySource::Global | KeySource::Descriptor | KeySource::Entry(_))
}
