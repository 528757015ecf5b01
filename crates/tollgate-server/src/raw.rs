//! The routes that a service calls for each of its requests, for a server that keeps heads and bodies in buffers.
//!
//! Bodies are decoded, decided and written by the code of [`Api::answer`]. A request that is not certainly valid is left to it, before
//! anything is charged: errors, browsers and unusual content types are answered in one place.

use std::pin::Pin;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tollgate::Store;
use tollgate_http::HeaderLines;

use crate::access::Caller;
use crate::api::Api;
use crate::body::{MAX_BODY_BYTES, may_be_json};
use crate::decision_json::write_throttled;
use crate::reply::{json, json_of, not_kept};
use crate::route::{Operation, Route};

/// A future of a response.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;

/// The way in which a buffered request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferedRoute {
    /// [`Api::try_answer`] answers without a header map.
    Raw,
    /// [`Api::answer`] answers; the whole request is needed.
    Whole,
}

/// A request in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferedRequest<'a, H> {
    /// The path without the query.
    pub path: &'a str,
    /// The only `Host`.
    pub host: &'a str,
    /// The headers.
    pub headers: &'a H,
    /// The whole body.
    pub body: &'a [u8],
}

/// The outcome of [`Api::try_answer`].
pub enum BufferedReply {
    /// The response is 200 with [`JSON_HEADER_LINES`](crate::JSON_HEADER_LINES). Its body was appended.
    Json,
    /// The decision waits for the store.
    Waits(ReplyFuture),
    /// Nothing was decided; [`Api::answer`] has to answer.
    Unusual,
}

impl std::fmt::Debug for BufferedReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Json => "Json",
            Self::Waits(_) => "Waits",
            Self::Unusual => "Unusual",
        })
    }
}

impl<S: Store> Api<S> {
    /// Returns how a server with buffers answers requests of this method and path. `None`: through
    /// [`answer`](Self::answer), with a body that streams.
    pub fn buffered_route(method: &str, path: &str) -> Option<BufferedRoute> {
        // Most paths are compared no further.
        if matches!(path, "/v1/check" | "/throttle") {
            return (method == "POST").then_some(BufferedRoute::Raw);
        }
        if !path.starts_with("/v1/") {
            return None;
        }
        match Route::of(path)? {
            Route::Named(_, Operation::Check) if method == "POST" => Some(BufferedRoute::Whole),
            Route::Auth(_) => Some(BufferedRoute::Whole),
            _ => None,
        }
    }

    /// Answers a `POST` of a [raw route](BufferedRoute::Raw): appends the body of the response to `out`, or nothing.
    pub fn try_answer<H: HeaderLines>(
        &self,
        request: &BufferedRequest<'_, H>,
        caller: &Caller,
        out: &mut Vec<u8>,
    ) -> BufferedReply {
        let BufferedRequest { path, host, headers, body } = *request;
        if body.len() > MAX_BODY_BYTES
            || headers.first_line("content-encoding").is_some()
            || !headers.first_line("content-type").is_none_or(may_be_json)
            || !self.0.access.is_admin_program(host, headers, caller)
        {
            return BufferedReply::Unusual;
        }
        let start = out.len();
        let answered = match Route::of(path) {
            Some(Route::Check) => self.try_answer_check(body, out),
            Some(Route::Throttle) => self.try_answer_throttle(body, out),
            _ => None,
        };
        answered.unwrap_or_else(|| {
            out.truncate(start);
            BufferedReply::Unusual
        })
    }

    fn try_answer_check(&self, body: &[u8], out: &mut Vec<u8>) -> Option<BufferedReply> {
        let Some(waiting) = self.0.try_check(body, out).ok()? else { return Some(BufferedReply::Json) };
        let (api, body) = (self.clone(), body.to_vec());
        Some(BufferedReply::Waits(Box::pin(async move {
            let mut out = Vec::with_capacity(512);
            let finished = api.0.finish_check(waiting, &body, &mut out).await;
            not_kept(finished.map_or_else(crate::problem::Problem::into_response, |()| json(out)))
        })))
    }

    fn try_answer_throttle(&self, body: &[u8], out: &mut Vec<u8>) -> Option<BufferedReply> {
        match self.0.try_throttle(body).ok()? {
            Ok(throttled) => {
                write_throttled(&throttled, out);
                Some(BufferedReply::Json)
            }
            Err(waiting) => {
                Some(BufferedReply::Waits(Box::pin(
                    async move { not_kept(json_of(&waiting.finish().await)) },
                )))
            }
        }
    }
}
