//! The commands that ask a running Tollgate.
//!
//! - `http`: a small blocking HTTP/1.1 client. One request, one answer, closed.
//! - `url`: where the API is.
//! - `report`: an answer in words.
//!
//! Not here: what the answers mean. `--json` prints them as they came.

mod http;
mod report;
mod url;

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::arguments::{self, Amount, Check, DEFAULT_API, Named};
use crate::environment::Environment;
use crate::failure::Failure;
use http::Answer;
use url::Url;

/// What is asked about one key of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Peek,
    Grant,
    Refund,
    Reset,
}

impl Operation {
    const fn word(self) -> &'static str {
        match self {
            Self::Peek => "peek",
            Self::Grant => "grant",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }
}

/// `tollgate check`: 0 when the request is allowed, 1 when it is not.
pub(crate) fn check(arguments: &Check, environment: &Environment) -> Result<ExitCode, Failure> {
    let body = check_body(arguments)?;
    let answer = ask(&arguments.api, environment, "/v1/check", &body)?;
    print(&arguments.api, &answer, report::decision)?;
    Ok(ExitCode::from(u8::from(answer.read["allowed"] != true)))
}

/// `tollgate peek` and `tollgate reset`.
pub(crate) fn named(
    operation: Operation,
    arguments: &Named,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let body = with_key(&arguments.key, Map::new());
    operate(operation, &arguments.limit, &body, &arguments.api, environment)
}

/// `tollgate grant` and `tollgate refund`.
pub(crate) fn amount(
    operation: Operation,
    arguments: &Amount,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let body = with_key(&arguments.key, Map::from_iter([("cost".to_owned(), json!(arguments.cost))]));
    operate(operation, &arguments.limit, &body, &arguments.api, environment)
}

fn operate(
    operation: Operation,
    limit: &str,
    body: &Value,
    api: &arguments::Api,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let path = format!("/v1/limits/{}/{}", url::segment(limit), operation.word());
    let answer = ask(api, environment, &path, body)?;
    print(api, &answer, |answer| report::key(operation, limit, answer))?;
    Ok(ExitCode::SUCCESS)
}

/// One value for a key of one part, a list for several; `by: global` has none.
fn with_key(parts: &[String], mut body: Map<String, Value>) -> Value {
    match parts {
        [] => {}
        [only] => drop(body.insert("key".to_owned(), json!(only))),
        several => drop(body.insert("key".to_owned(), json!(several))),
    }
    body.into()
}

fn check_body(arguments: &Check) -> Result<Value, Failure> {
    let (method, path) = match arguments.request.as_slice() {
        [method, path] => (method.as_str(), path),
        [path] => ("GET", path),
        _ => return Err(Failure::new("give a path, or a method and a path")),
    };
    if !path.starts_with('/') {
        let message = format!("`{path}` is not a path: it begins with `/`");
        return Err(Failure::with_help(message, "tollgate check POST /api/v1/login --ip 203.0.113.9"));
    }
    let mut body = Map::new();
    body.insert("method".into(), json!(method.to_ascii_uppercase()));
    body.insert("path".into(), json!(path));
    for (name, value) in [
        ("ip", &arguments.ip),
        ("user", &arguments.user),
        ("api_key", &arguments.api_key),
        ("tenant", &arguments.tenant),
        ("plan", &arguments.plan),
        ("host", &arguments.host),
    ] {
        if let Some(value) = value {
            body.insert(name.into(), json!(value));
        }
    }
    if let Some(cost) = arguments.cost {
        body.insert("cost".into(), json!(cost));
    }
    let mut headers = Map::new();
    for header in &arguments.headers {
        let Some((name, value)) = header.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
            let message = format!("`{header}` is not a header");
            return Err(Failure::with_help(message, "--header 'X-Plan: pro'"));
        };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        // One header twice is one list (RFC 9110, section 5.3).
        let value = match headers.get(&name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.to_owned(),
        };
        headers.insert(name, json!(value));
    }
    if !headers.is_empty() {
        body.insert("headers".into(), headers.into());
    }
    Ok(body.into())
}

/// An answer, as it came and as it was read.
struct Understood {
    body: Vec<u8>,
    read: Value,
}

/// The answer, or why there is none.
fn ask(
    api: &arguments::Api,
    environment: &Environment,
    path: &str,
    body: &Value,
) -> Result<Understood, Failure> {
    let url = api.api.as_deref().or_else(|| environment.get("API")).unwrap_or(DEFAULT_API);
    let url = Url::parse(url)?;
    // As a file of tokens would be read: a line break at its end is no part of it.
    let token = environment.get("TOKEN").map(str::trim).filter(|token| !token.is_empty());
    let answer = http::post(&url, path, token, &body.to_string())?;
    understood(&url, answer, token.is_some())
}

fn understood(url: &Url, answer: Answer, with_token: bool) -> Result<Understood, Failure> {
    let Answer { status, body } = answer;
    let json: Option<Value> = serde_json::from_slice(&body).ok();
    match (status, json) {
        (200, Some(read)) if is_answer(&read) => Ok(Understood { body, read }),
        // The API never refuses by a limit; a gateway before something else does.
        (200..=299 | 429, _) => Err(Failure::with_help(
            format_args!("{url} is not the API of a Tollgate (is this the gateway's port?)"),
            "`--api URL` names another; `tollgate serve` says where its API is",
        )),
        (401, _) if with_token => Err(Failure::with_help(
            format_args!("{url} does not accept the token in TOLLGATE_TOKEN"),
            "it must be what that server has in `admin.token_file` or TOLLGATE_ADMIN_TOKEN",
        )),
        (401, _) => Err(Failure::with_help(
            format_args!("{url} wants a token (status {status})"),
            "set TOLLGATE_TOKEN to the token of that server",
        )),
        (_, Some(problem)) if problem["detail"].is_string() => {
            Err(Failure::new(report::printable(problem["detail"].as_str().unwrap_or_default())))
        }
        (404, _) => Err(Failure::with_help(
            format_args!("{url} does not know this question (status 404)"),
            "is this the API of a Tollgate? `--api URL` names another",
        )),
        (_, _) => Err(Failure::with_help(
            format_args!("{url} gave an answer that is not understood (status {status})"),
            "is this the API of a Tollgate? `--api URL` names another",
        )),
    }
}

/// Whether it has the shape that every question here is answered in. Whatever else
/// listens there may answer JSON too, and a check must not believe it.
fn is_answer(read: &Value) -> bool {
    read["allowed"].is_boolean() && read["limits"].is_array()
}

fn print(
    api: &arguments::Api,
    answer: &Understood,
    words: impl FnOnce(&Value) -> String,
) -> Result<(), Failure> {
    if api.json {
        crate::output::line(String::from_utf8_lossy(&answer.body).trim_end())
    } else {
        crate::output::text(&words(&answer.read))
    }
}
