//! Endpoints where passwords and codes are tried, and who may try how often.
//!
//! A limit by address alone stops one machine and not a thousand; one by account alone stops
//! a thousand tries of one account and not one try of each. It takes both; but for signing up,
//! where there is no account yet. Only endpoints that the file names are looked at: what else a
//! service has is not known here.

use std::collections::HashSet;

use super::cover::covers_sites;
use super::promise::a_second;
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::diagnostic::{Place, Problems};
use crate::lint::Lint;
use crate::pattern::{PathPattern, Segment};
use crate::source::KeySource;

/// Segments of paths, in lower case and without `-`, `_` and `.`.
const LOGIN_SEGMENTS: [&str; 19] = [
    "login",
    "logon",
    "wplogin",
    "signin",
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
/// Where accounts are made.
const SIGN_UP_SEGMENTS: [&str; 3] = ["signup", "register", "registration"];
/// What only the last segment says, and only behind one of the others: `/oauth/token`.
const TOKEN_SEGMENTS: [&str; 4] = ["token", "accesstoken", "session", "sessions"];
const AUTH_SEGMENTS: [&str; 6] = ["oauth", "oauth2", "auth", "connect", "openidconnect", "login"];
/// Methods that bring nothing to be tried.
const READ_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// A limit of more than this many a second limits no guessing: it is nearly ten million a day.
const MAX_GUESSES_PER_SECOND: u64 = 100;

/// What is done at an endpoint.
#[derive(Clone, Copy, PartialEq)]
enum EndpointPurpose {
    Guessed,
    SignedUp,
}

/// An endpoint of a limit, as far as it matters who may come there.
struct LoginEndpoint<'l> {
    path: &'l PathPattern,
    place: Place,
    done: EndpointPurpose,
    /// By which something is tried.
    methods: Vec<&'l str>,
    of: &'l LintedLimit<'l>,
}

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let mut told = HashSet::new();
    for limit in linted.iter().filter(|it| it.is_on()) {
        for endpoint in &limit.written.endpoint {
            let Some(done) = done_at(&endpoint.value) else { continue };
            if told.len() >= MAX_COMPARED_PAIRS / linted.len() || told.contains(&endpoint.value.segments) {
                continue;
            }
            let writing = limit.live.methods().filter(|it| !READ_METHODS.contains(it));
            let mut methods: Vec<&str> = writing.collect();
            if methods.is_empty() {
                methods.push("POST");
            }
            let door =
                LoginEndpoint { path: &endpoint.value, place: endpoint.place, done, methods, of: limit };
            if find_missing(&door, linted, problems) {
                told.insert(endpoint.value.segments.clone());
            }
        }
    }
}

fn done_at(pattern: &PathPattern) -> Option<EndpointPurpose> {
    let segments: Vec<[String; 2]> = pattern
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(text) => [bare(text), bare(without_extension(text))],
            Segment::One(_) => Default::default(),
        })
        .collect();
    let has = |segments: &[[String; 2]], words: &[&str]| {
        segments.iter().flatten().any(|text| words.contains(&&**text))
    };
    let is_last = segments.split_last().is_some_and(|(last, before)| {
        has(std::slice::from_ref(last), &TOKEN_SEGMENTS) && has(before, &AUTH_SEGMENTS)
    });
    if is_last || has(&segments, &LOGIN_SEGMENTS) {
        Some(EndpointPurpose::Guessed)
    } else {
        has(&segments, &SIGN_UP_SEGMENTS).then_some(EndpointPurpose::SignedUp)
    }
}

fn bare(text: &str) -> String {
    text.chars().filter(|it| !"-_.".contains(*it)).flat_map(char::to_lowercase).collect()
}

/// `login` of `login.php`.
fn without_extension(text: &str) -> &str {
    text.rsplit_once('.').map_or(text, |(stem, _)| stem)
}

/// Says what is missing, and whether anything is.
fn find_missing(door: &LoginEndpoint<'_>, linted: &[LintedLimit<'_>], problems: &mut Problems) -> bool {
    let on: Vec<&LintedLimit<'_>> = linted.iter().filter(|it| it.is_on() && is_for(it, door)).collect();
    // One limit for each method will do.
    let all_by = |is_wanted: fn(&KeySource) -> bool| {
        let has = |it: &LintedLimit<'_>| matches!(it.live.by(), [only] if is_wanted(only));
        door.methods.iter().all(|method| on.iter().any(|it| has(it) && it.live.covers_method(method)))
    };
    let by_address = all_by(|part| *part == KeySource::Ip);
    let by_account = all_by(is_account);
    let (missing, what, add) = match (door.done, by_address, by_account) {
        (_, true, true) | (EndpointPurpose::SignedUp, true, false) => return false,
        (EndpointPurpose::SignedUp, false, _) => {
            ("address where accounts are made", "one machine may make as many as it likes", "by: ip")
        }
        (EndpointPurpose::Guessed, true, false) => (
            "account where something is guessed",
            "many machines may try one account as often as they like",
            "by: user",
        ),
        (EndpointPurpose::Guessed, false, true) => {
            ("address where something is guessed", "one machine may try every account there is", "by: ip")
        }
        (EndpointPurpose::Guessed, false, false) => (
            "address and none by account where something is guessed",
            "one machine may try every account there is",
            "by: ip",
        ),
    };
    let warning = problems
        .warning(Lint::LoginUnlimited, door.place, format!("no limit by {missing}"))
        .label(what)
        .help(format!("add one for `{}` alone: `{add}` with `bucket: 5/minute`, say", door.path))
        .help("a key of several parts (`by: [ip, user]`) is neither: each pair begins anew");
    let covers_methods =
        |it: &LintedLimit<'_>| door.methods.iter().all(|method| it.live.covers_method(method));
    if !covers_methods(door.of) {
        warning.help(format!("it must cover `method: {}`, by which something is tried", door.methods[0]));
    }
    true
}

/// Whether a limit is meant for this endpoint, and limits anything: one for everything counts if
/// it is as narrow as one for passwords would be, one a second.
fn is_for(limit: &LintedLimit<'_>, door: &LoginEndpoint<'_>) -> bool {
    let covering = limit.live.endpoints().iter().find(|it| it.covers_all_of(door.path));
    let covering = covering.filter(|_| !limit.live.except().iter().any(|it| it.covers_all_of(door.path)));
    covering.is_some_and(|it| {
        let is_everything = it.tail && it.segments.is_empty();
        let most = if is_everything { 1 } else { MAX_GUESSES_PER_SECOND };
        a_second(limit.live.rules()).is_some_and(|pace| pace <= most)
    }) && covers_sites(limit.live, door.of.live)
}

/// Whether it names whose password is tried. A cookie does not: who has none is given one.
fn is_account(part: &KeySource) -> bool {
    !matches!(
        part,
        KeySource::Ip
            | KeySource::Global
            | KeySource::Cookie(_)
            | KeySource::Descriptor
            | KeySource::Entry(_)
    )
}
