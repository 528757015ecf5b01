//! Calls a running Tollgate, and reads its responses.
//!
//! Another service may also respond with JSON, so a response must have the expected shape of
//! `tollgate_api`, and any other response is an error.

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tollgate::Span;
use tollgate_api::Problem;
use tollgate_daemon::io_error::Attempt;
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;
use tollgate_net::HttpUrl;

use super::http::{self, Answer};
use super::tls::Tls;
use super::url;
use crate::arguments::{self, DEFAULT_API};

/// The default timeout of a whole exchange.
const EXCHANGE_TIMEOUT: Span = Span::from_secs(30);

/// A request.
pub(crate) struct Question {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<String>,
    /// The help for a 404.
    help_if_unknown: Option<String>,
}

impl Question {
    /// Creates a `GET`.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, help_if_unknown: None }
    }

    /// Creates a `POST`.
    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize) -> Self {
        // Serializing to memory does not fail.
        let body = Some(serde_json::to_string(body).unwrap_or_default());
        Self { method: Method::POST, body, ..Self::get(path) }
    }

    /// Creates a `PUT`.
    pub(crate) fn put(path: impl Into<String>, body: &impl Serialize) -> Self {
        Self { method: Method::PUT, ..Self::post(path, body) }
    }

    /// Sets the help for a 404.
    pub(crate) fn help_if_unknown(self, help: Option<String>) -> Self {
        Self { help_if_unknown: help, ..self }
    }
}

/// A response, unparsed and parsed.
pub(crate) struct ParsedResponse<T> {
    pub(crate) body: Vec<u8>,
    pub(crate) value: T,
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
        let url = api.server.url.as_deref().or_else(|| environment.get("API")).unwrap_or(DEFAULT_API);
        let url = url::parse(url)?;
        // Trimmed like a token file, so that a trailing line break does not count.
        let token = environment.get("TOKEN").map(str::trim).filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Failure::new("TOLLGATE_TOKEN holds characters that no header can carry"));
        }
        let tls = if url.is_secure() {
            Some(Tls::read(api, environment)?)
        } else if api.server.ca.is_some() || api.server.cert.is_some() || api.key.is_some() {
            return Err(Failure::with_help(
                format_args!("{url} is asked without TLS, so --ca, --cert and --key mean nothing"),
                "name it with https://",
            ));
        } else {
            None
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let failed = |error| Failure::io(format_args!("cannot connect to {url}"), &error, Attempt::Other);
        let runtime = runtime.map_err(failed)?;
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
    pub(crate) fn ask<T: DeserializeOwned>(&self, question: &Question) -> Result<ParsedResponse<T>, Failure> {
        let (tls, token) = (self.tls.as_ref(), self.token.as_deref());
        let Answer { status, body } =
            http::ask(&self.runtime, &self.url, tls, token, question, self.patience)?;
        match serde_json::from_slice(&body) {
            Ok(value) if status == 200 => Ok(ParsedResponse { body, value }),
            _ => Err(self.failure(status, &body, question)),
        }
    }

    /// Words a response that is an error, or is not of this API.
    fn failure(&self, status: u16, body: &[u8], question: &Question) -> Failure {
        let (url, with_token) = (&self.url, self.token.is_some());
        let problem = serde_json::from_slice(body).ok().map(|it: Problem| printable(&it.detail));
        match (status, problem) {
            // The API never returns 429; a gateway in front of another service does.
            (200..=299 | 429, _) => Failure::with_help(
                format_args!("{url} is not the API of a Tollgate (is this the gateway's port?)"),
                "`--api URL` names another; `tollgate serve` says where its API is. Or is it of another version than this command?",
            ),
            (401, _) if with_token => Failure::with_help(
                format_args!("{url} does not accept the token in TOLLGATE_TOKEN"),
                "it must be what that server has in `admin.token_file` or TOLLGATE_ADMIN_TOKEN; to look only, `admin.read_token_file` or TOLLGATE_READ_TOKEN",
            ),
            (401, _) => Failure::with_help(
                format_args!("{url} requires a token (status {status})"),
                "set TOLLGATE_TOKEN to the token of that server",
            ),
            (403, Some(detail)) if with_token => Failure::with_help(
                detail,
                "if TOLLGATE_TOKEN is the token for reading: this needs the admin token",
            ),
            (_, Some(detail)) => {
                let help = question.help_if_unknown.as_ref().filter(|_| status == 404);
                help.map_or_else(|| Failure::new(&detail), |help| Failure::with_help(&detail, help))
            }
            (404 | 405, None) => Failure::with_help(
                format_args!("{url} does not know this question (status {status})"),
                "is this the API of a Tollgate? `--api URL` names another",
            ),
            (_, None) => Failure::with_help(
                format_args!("{url} gave an answer that is not understood (status {status})"),
                "is this the API of a Tollgate? `--api URL` names another",
            ),
        }
    }
}
