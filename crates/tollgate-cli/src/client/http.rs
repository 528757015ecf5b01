//! Sends one request to the API, and words the reasons why there is no response.
//!
//! The client is `tollgate_net::HttpClient`. A command sends few requests, so each has its own
//! connection; TLS sessions are resumed.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::timeout;
use tollgate::Span;
use tollgate_daemon::Failure;
use tollgate_daemon::io_error::{Attempt, reason};
use tollgate_net::{ClientRequest, HttpClient, HttpClientError, HttpUrl};

use super::server::Question;
use super::tls::{self, Tls};

const MAX_BODY_BYTES: usize = 8 << 20;

/// A status and a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Sends a request, over TLS if configured, and waits at most `patience` for the response.
pub(super) fn ask(
    runtime: &Runtime,
    url: &HttpUrl,
    tls: Option<&Tls>,
    token: Option<&str>,
    question: &Question,
    patience: Span,
) -> Result<Answer, Failure> {
    let mut client = HttpClient::new(url.clone(), tls.map(|it| Arc::clone(&it.0)), MAX_BODY_BYTES);
    let json = question.body.clone().map(Into::into);
    let request = ClientRequest { method: question.method.clone(), path: &question.path, json, token };
    let exchange = async move {
        let response = client.send(request).await?;
        Ok(Answer { status: response.status.as_u16(), body: response.body?.to_vec() })
    };
    let limit = Duration::from_micros(patience.as_micros());
    let answer = runtime.block_on(async {
        let answer = timeout(limit, exchange).await;
        // The task of the connection closes it now, not with the next request.
        yield_now().await;
        answer
    });
    match answer {
        Ok(answer) => answer.map_err(|error| explain(url, &error)),
        Err(_late) => {
            let seconds = patience.as_secs_ceil();
            Err(Failure::new(format_args!("{url} gave no answer within {seconds} seconds")))
        }
    }
}

fn explain(url: &HttpUrl, error: &HttpClientError) -> Failure {
    let help = "is this the API of a Tollgate? `--api URL` names another, with https:// if it speaks TLS";
    match error {
        HttpClientError::Connect(error) => Failure::with_help(
            format_args!("cannot reach a Tollgate at {url}: {}", reason(error, Attempt::Connect)),
            "start one with `tollgate serve`, or name another with `--api URL` or TOLLGATE_API",
        ),
        HttpClientError::Connection(error) => tls::explain(url, error).unwrap_or_else(|| {
            Failure::with_help(
                format_args!("{url} gave no answer: {}", reason(error, Attempt::Connect)),
                help,
            )
        }),
        other => Failure::with_help(format_args!("{url} gave an answer that is not HTTP: {other}"), help),
    }
}
