//! Commands that call a running Tollgate.
//!
//! - `server`: the server to call, and the validation of its responses.
//! - `http`, `tls`, `url`: the connection to the server, and messages about its failures.
//! - `request`: a request described by arguments.
//! - `report`, `explanation`, `bucket`: responses as text.
//! - `decisions`: past decisions. `limits`: the limits in force. `health`: readiness.
//! - `switches`: modes, and the record of their changes.
//!
//! `--json` prints responses unchanged. The live screen (`top`) uses the same `Server`.

mod bucket;
mod decisions;
mod explanation;
mod health;
mod http;
mod limits;
mod report;
mod request;
mod server;
mod switches;
mod tls;
mod url;

use std::process::ExitCode;

use tollgate::DecisionId;
use tollgate_api::{CheckRequest, Decision, Explanation, KeyRequest, OneOrMany};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;

use crate::arguments::{Amount, Api, Check, Explain, KeyArguments};

pub(crate) use decisions::decisions;
pub(crate) use explanation::words as explained;
pub(crate) use health::health;
pub(crate) use limits::limits;
pub(crate) use report::{in_words, rows, tagged};
pub(crate) use server::{ParsedResponse, Question, Server};
pub(crate) use switches::{changes, mode};
pub(crate) use tls::trusting as client_tls;
pub(crate) use url::segment;

/// An operation on one key of one limit.
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

/// `tollgate check`: exit status 0 if the request is allowed, 1 if it is refused.
pub(crate) fn check(arguments: &Check, environment: &Environment) -> Result<ExitCode, Failure> {
    let body = request::body("check", &arguments.request, &arguments.caller)?;
    let server = Server::of(&arguments.api, environment)?;
    let answer = server.ask::<Decision>(&Question::post("/v1/check", &body))?;
    print(&arguments.api, &answer, report::decision)?;
    Ok(ExitCode::from(u8::from(!answer.value.allowed)))
}

/// `tollgate explain`: exit status 0 if there is an explanation, 1 if a hypothetical request would be
/// refused.
pub(crate) fn explain(arguments: &Explain, environment: &Environment) -> Result<ExitCode, Failure> {
    if let Some(entries) = &arguments.bucket {
        return bucket::explain(entries, arguments, environment);
    }
    let subject = Subject::of(arguments)?;
    let server = Server::of(&arguments.api, environment)?;
    let question = match &subject {
        Subject::Decision(id) => Question::get(format!("/v1/decisions/{id}")),
        Subject::Request(body) => Question::post("/v1/explain", body),
    };
    let answer = server.ask::<Explanation>(&question)?;
    print(&arguments.api, &answer, |answer| explanation::words(answer).join("\n") + "\n")?;
    let is_refused = matches!(subject, Subject::Request(_)) && !answer.value.allowed;
    Ok(ExitCode::from(u8::from(is_refused)))
}

/// The decision or request to explain.
enum Subject {
    Decision(DecisionId),
    Request(Box<CheckRequest>),
}

impl Subject {
    /// An argument that begins with `/` is a path.
    fn of(arguments: &Explain) -> Result<Self, Failure> {
        let Explain { subject, caller, .. } = arguments;
        if subject.last().is_some_and(|last| last.starts_with('/')) {
            return request::body("explain", subject, caller).map(|body| Self::Request(Box::new(body)));
        }
        // A whole header line, as one argument or as two.
        let typed = subject.join(" ");
        let id = typed.rsplit_once(':').map_or(&*typed, |(_, id)| id).trim();
        let Ok(id) = id.to_ascii_lowercase().parse() else {
            return Err(Failure::with_help(
                format_args!("`{}` is neither the id of a decision nor a path", printable(&typed)),
                "an id is sixteen hexadecimal digits, in the header Tollgate-Decision of an answer; a path begins with `/`",
            ));
        };
        if !request::is_anonymous(caller) {
            return Err(Failure::with_help(
                "the caller is part of the decision already",
                format_args!("tollgate explain {id}, or a path instead of the id"),
            ));
        }
        Ok(Self::Decision(id))
    }
}

/// `tollgate peek` and `tollgate reset`.
pub(crate) fn named(
    operation: Operation,
    arguments: &KeyArguments,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    operate(operation, arguments, None, None, environment)
}

/// `tollgate grant` and `tollgate refund`.
pub(crate) fn amount(
    operation: Operation,
    arguments: &Amount,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let Amount { of, cost } = arguments;
    operate(operation, of, Some(*cost), amount_among_keys(operation, arguments), environment)
}

/// For `grant LIMIT 203.0.113.9 2`: suggests `--cost` if the last part of the key looks like an amount.
fn amount_among_keys(operation: Operation, arguments: &Amount) -> Option<String> {
    let Amount { of, cost } = arguments;
    let (last, rest) = of.key.split_last()?;
    let amount: u64 = last.parse().ok().filter(|_| *cost == 1)?;
    let words = [std::slice::from_ref(&of.limit), rest].concat();
    let (word, words) = (operation.word(), printable(&words.join(" ")));
    Some(format!("an amount is given with `--cost`: tollgate {word} {words} --cost {amount}"))
}

fn operate(
    operation: Operation,
    of: &KeyArguments,
    cost: Option<u64>,
    help_if_unknown: Option<String>,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let KeyArguments { limit, key: parts, api } = of;
    let path = format!("/v1/limits/{}/{}", url::segment(limit), operation.word());
    let body: KeyRequest = KeyRequest { key: key(parts), cost, plan: None };
    let question = Question::post(path, &body).help_if_unknown(help_if_unknown);
    let answer = Server::of(api, environment)?.ask(&question)?;
    print(api, &answer, |decision| report::key(operation, limit, decision))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the key: a string for one part, a list for several, nothing for `by: global`.
fn key(parts: &[String]) -> Option<OneOrMany> {
    match parts {
        [] => None,
        [only] => Some(OneOrMany::One(only.clone())),
        several => Some(OneOrMany::Many(several.to_vec())),
    }
}

fn print<T>(api: &Api, answer: &ParsedResponse<T>, words: impl FnOnce(&T) -> String) -> Result<(), Failure> {
    if api.json {
        crate::output::line(String::from_utf8_lossy(&answer.body).trim_end())
    } else {
        crate::output::text(&words(&answer.value))
    }
}
