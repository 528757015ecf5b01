//! Endpoints that check passwords and codes, and the limits that bound guessing.
//!
//! A limit by address alone stops one machine, not a thousand. A limit by account alone stops a
//! thousand guesses for one account, not one guess for each account. Both are needed, except for
//! sign-up, where no account exists yet. The lint looks only at endpoints that the file names:
//! other endpoints of the service are unknown.

use std::collections::HashSet;

use tollgate_document::{Place, Problems};

use super::cover::covers_sites;
use super::promise::a_second;
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::lint::Lint;
use crate::pattern::{PathPattern, Segment};
use crate::source::KeySource;

/// Path segments of login endpoints, in lower case and without `-`, `_` and `.`.
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
/// Path segments of endpoints that create accounts.
const SIGN_UP_SEGMENTS: [&str; 3] = ["signup", "register", "registration"];
/// Segments that count only in last position behind one of the others: `/oauth/token`.
const TOKEN_SEGMENTS: [&str; 4] = ["token", "accesstoken", "session", "sessions"];
const AUTH_SEGMENTS: [&str; 6] = ["oauth", "oauth2", "auth", "connect", "openidconnect", "login"];
/// Methods that carry no credentials to guess.
const READ_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// A limit above this rate does not prevent guessing: it admits nearly ten million a day.
const MAX_GUESSES_PER_SECOND: u64 = 100;

/// The purpose of an endpoint.
#[derive(Clone, Copy, PartialEq)]
enum EndpointPurpose {
    Login,
    SignUp,
}

/// A login endpoint of a limit.
struct LoginEndpoint<'l> {
    path: &'l PathPattern,
    place: Place,
    purpose: EndpointPurpose,
    /// The methods that carry credentials.
    methods: Vec<&'l str>,
    limit: &'l LintedLimit<'l>,
}

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let mut reported = HashSet::new();
    for limit in linted.iter().filter(|it| it.is_on()) {
        for endpoint in &limit.written.endpoint {
            let Some(purpose) = purpose_of(&endpoint.value) else { continue };
            if reported.len() >= MAX_COMPARED_PAIRS / linted.len()
                || reported.contains(&endpoint.value.segments)
            {
                continue;
            }
            let writing = limit.live.methods().filter(|it| !READ_METHODS.contains(it));
            let mut methods: Vec<&str> = writing.collect();
            if methods.is_empty() {
                methods.push("POST");
            }
            let login =
                LoginEndpoint { path: &endpoint.value, place: endpoint.place, purpose, methods, limit };
            if find_missing(&login, linted, problems) {
                reported.insert(endpoint.value.segments.clone());
            }
        }
    }
}

fn purpose_of(pattern: &PathPattern) -> Option<EndpointPurpose> {
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
        Some(EndpointPurpose::Login)
    } else {
        has(&segments, &SIGN_UP_SEGMENTS).then_some(EndpointPurpose::SignUp)
    }
}

fn bare(text: &str) -> String {
    text.chars().filter(|it| !"-_.".contains(*it)).flat_map(char::to_lowercase).collect()
}

/// Removes the extension: `login` of `login.php`.
fn without_extension(text: &str) -> &str {
    text.rsplit_once('.').map_or(text, |(stem, _)| stem)
}

/// Reports missing limits on an endpoint, and returns whether any is missing.
fn find_missing(login: &LoginEndpoint<'_>, linted: &[LintedLimit<'_>], problems: &mut Problems) -> bool {
    let on: Vec<&LintedLimit<'_>> = linted.iter().filter(|it| it.is_on() && is_for(it, login)).collect();
    // One limit per method is sufficient.
    let all_by = |is_wanted: fn(&KeySource) -> bool| {
        let has = |it: &LintedLimit<'_>| matches!(it.live.by(), [only] if is_wanted(only));
        login.methods.iter().all(|method| on.iter().any(|it| has(it) && it.live.covers_method(method)))
    };
    let by_address = all_by(|part| *part == KeySource::Ip);
    let by_account = all_by(is_account);
    let (missing, what, add) = match (login.purpose, by_address, by_account) {
        (_, true, true) | (EndpointPurpose::SignUp, true, false) => return false,
        (EndpointPurpose::SignUp, false, _) => (
            "address on an endpoint that creates accounts",
            "one machine can create any number of accounts",
            "by: ip",
        ),
        (EndpointPurpose::Login, true, false) => (
            "account on an endpoint that checks credentials",
            "many machines can guess at one account without a limit",
            "by: user",
        ),
        (EndpointPurpose::Login, false, true) => {
            ("address on an endpoint that checks credentials", "one machine can try every account", "by: ip")
        }
        (EndpointPurpose::Login, false, false) => (
            "address and no limit by account on an endpoint that checks credentials",
            "one machine can try every account",
            "by: ip",
        ),
    };
    let warning = problems
        .warning(Lint::LoginUnlimited, login.place, format!("no limit by {missing}"))
        .label(what)
        .help(format!("add a limit for `{}` only: `{add}` with `bucket: 5/minute`, for example", login.path))
        .help("a key of several parts (`by: [ip, user]`) does not help: each pair has its own allowance");
    let covers_methods =
        |it: &LintedLimit<'_>| login.methods.iter().all(|method| it.live.covers_method(method));
    if !covers_methods(login.limit) {
        warning.help(format!("it must cover `method: {}`, which carries the credentials", login.methods[0]));
    }
    true
}

/// Whether a limit is meant for this endpoint and bounds guessing. A limit on everything counts
/// if it is as narrow as a password limit would be: one request per second.
fn is_for(limit: &LintedLimit<'_>, login: &LoginEndpoint<'_>) -> bool {
    let covering = limit.live.endpoints().iter().find(|it| it.covers_all_of(login.path));
    let covering = covering.filter(|_| !limit.live.except().iter().any(|it| it.covers_all_of(login.path)));
    covering.is_some_and(|it| {
        let is_everything = it.tail && it.segments.is_empty();
        let most = if is_everything { 1 } else { MAX_GUESSES_PER_SECOND };
        a_second(limit.live.rules()).is_some_and(|pace| pace <= most)
    }) && covers_sites(limit.live, login.limit.live)
}

/// Whether a key source identifies the account. A cookie does not: a client without one gets one.
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
