//! Calls a running Tollgate, and validates its responses.
//!
//! Another service may also respond with JSON, so each question has a predicate for the shape of its
//! response, and any other response is an error.

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;
use tollgate::Span;
use tollgate_daemon::io_error::{Attempt, reason};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;
use tollgate_net::HttpUrl;

use super::http::{self, Answer};
use super::tls::Tls;
use super::url;
use crate::arguments::{self, DEFAULT_API};

/// The default timeout of a whole exchange.
const EXCHANGE_TIMEOUT: Span = Span::from_secs(30);

/// A request, and the predicate for its response.
pub(crate) struct Question {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    shape: fn(&Value) -> bool,
    /// The help for a 404.
    help_if_unknown: Option<String>,
}

impl Question {
    /// Creates a `GET`.
    pub(crate) fn get(path: impl Into<String>, shape: fn(&Value) -> bool) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, shape, help_if_unknown: None }
    }

    /// Creates a `POST`.
    pub(crate) fn post(path: impl Into<String>, body: Value, shape: fn(&Value) -> bool) -> Self {
        Self { method: Method::POST, path: path.into(), body: Some(body), shape, help_if_unknown: None }
    }

    /// Sets the help for a 404.
    pub(crate) fn help_if_unknown(self, help: Option<String>) -> Self {
        Self { help_if_unknown: help, ..self }
    }

    /// Creates a `PUT`.
    pub(crate) fn put(path: impl Into<String>, body: Value, shape: fn(&Value) -> bool) -> Self {
        Self { method: Method::PUT, path: path.into(), body: Some(body), shape, help_if_unknown: None }
    }
}

/// A response, unparsed and parsed.
pub(crate) struct ParsedResponse {
    pub(crate) body: Vec<u8>,
    pub(crate) read: Value,
}

/// A server, with the credentials for it.
pub(crate) struct Server {
    /// Runs one exchange at a time.
    runtime: Runtime,
    url: HttpUrl,
    token: Option<String>,
    tls: Option<Tls>,
    patience: Span,
}

impl Server {
    /// Configures the server without connecting to it.
    pub(crate) fn of(api: &arguments::Api, environment: &Environment) -> Result<Self, Failure> {
        let url = api.url.as_deref().or_else(|| environment.get("API")).unwrap_or(DEFAULT_API);
        let url = url::parse(url)?;
        // Trimmed like a token file, so that a trailing line break does not count.
        let token = environment.get("TOKEN").map(str::trim).filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Failure::new("TOLLGATE_TOKEN holds characters that no header can carry"));
        }
        let tls = if url.is_secure() {
            Some(Tls::read(api, environment)?)
        } else if api.ca.is_some() || api.cert.is_some() || api.key.is_some() {
            return Err(Failure::with_help(
                format_args!("{url} is asked without TLS, so --ca, --cert and --key mean nothing"),
                "name it with https://",
            ));
        } else {
            None
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::new(format_args!("cannot connect to {url}: {}", reason(&error, Attempt::Other)))
        })?;
        Ok(Self { runtime, url, token: token.map(str::to_owned), tls, patience: EXCHANGE_TIMEOUT })
    }

    /// Sets the timeout of an exchange.
    pub(crate) fn within(mut self, patience: Span) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the URL of the API.
    pub(crate) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends a question, and returns the response or the reason of the failure.
    pub(crate) fn ask(&self, question: &Question) -> Result<ParsedResponse, Failure> {
        let (tls, token) = (self.tls.as_ref(), self.token.as_deref());
        let answer = http::ask(&self.runtime, &self.url, tls, token, question, self.patience)?;
        self.understood(answer, question)
    }

    /// Converts a response to its type.
    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &ParsedResponse) -> Result<T, Failure> {
        T::deserialize(&answer.read).map_err(|error| {
            Failure::with_help(
                format_args!("{} answers in a way that is not understood: {error}", self.url),
                "is it of another version than this command?",
            )
        })
    }

    fn understood(&self, answer: Answer, question: &Question) -> Result<ParsedResponse, Failure> {
        let (url, with_token) = (&self.url, self.token.is_some());
        let Answer { status, body } = answer;
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        match (status, json) {
            (200, Some(read)) if (question.shape)(&read) => Ok(ParsedResponse { body, read }),
            // The API never returns 429; a gateway in front of another service does.
            (200..=299 | 429, _) => Err(Failure::with_help(
                format_args!("{url} is not the API of a Tollgate (is this the gateway's port?)"),
                "`--api URL` names another; `tollgate serve` says where its API is",
            )),
            (401, _) if with_token => Err(Failure::with_help(
                format_args!("{url} does not accept the token in TOLLGATE_TOKEN"),
                "it must be what that server has in `admin.token_file` or TOLLGATE_ADMIN_TOKEN; to look only, `admin.read_token_file` or TOLLGATE_READ_TOKEN",
            )),
            (401, _) => Err(Failure::with_help(
                format_args!("{url} requires a token (status {status})"),
                "set TOLLGATE_TOKEN to the token of that server",
            )),
            (403, Some(problem)) if with_token && problem["detail"].is_string() => Err(Failure::with_help(
                detail(&problem),
                "if TOLLGATE_TOKEN is the token for reading: this needs the admin token",
            )),
            (_, Some(problem)) if problem["detail"].is_string() => {
                let help = question.help_if_unknown.as_ref().filter(|_| status == 404);
                let told = detail(&problem);
                Err(help.map_or_else(|| Failure::new(&told), |help| Failure::with_help(&told, help)))
            }
            (404 | 405, _) => Err(Failure::with_help(
                format_args!("{url} does not know this question (status {status})"),
                "is this the API of a Tollgate? `--api URL` names another",
            )),
            (_, _) => Err(Failure::with_help(
                format_args!("{url} gave an answer that is not understood (status {status})"),
                "is this the API of a Tollgate? `--api URL` names another",
            )),
        }
    }
}

/// Whether a response has the shape of a type.
pub(crate) fn has_shape<T: DeserializeOwned>(read: &Value) -> bool {
    T::deserialize(read).is_ok()
}

fn detail(problem: &Value) -> String {
    printable(problem["detail"].as_str().unwrap_or_default())
}
