//! Collects the body of a request up to a bound, and parses it as JSON.

use std::error::Error;
use std::pin::pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use serde::Deserialize;
use serde_json::error::Category;
use tollgate_document::nearest;

use crate::problem::Problem;

/// The maximum length of the body of one request.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;
/// The maximum length of the body of a batch.
pub(crate) const MAX_BATCH_BODY_BYTES: usize = 1024 * 1024;
/// The maximum number of characters that are quoted from a request.
const MAX_QUOTED_CHARS: usize = 40;

/// Returns the whole body, unless its content type excludes JSON or it is too long.
pub(crate) async fn collect<B>(headers: &HeaderMap, body: B, most: usize) -> Result<Bytes, Problem>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let is_plain = |it: &HeaderValue| it.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
        return Err(Problem::wrong_encoding());
    }
    if !headers.get(CONTENT_TYPE).is_none_or(|said| may_be_json(said.as_bytes())) {
        return Err(Problem::wrong_type());
    }
    if body.size_hint().lower() > most as u64 {
        return Err(Problem::too_large(most));
    }
    let mut body = pin!(body);
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(frame) = frame.map_err(drop) else {
            return Err(Problem::bad_request("the body broke off before its end; send it again"));
        };
        let Ok(mut data) = frame.into_data() else { continue };
        let length = data.remaining();
        if first.len().max(all.len()).saturating_add(length) > most {
            return Err(Problem::too_large(most));
        }
        // Most bodies arrive in one frame, which is not copied.
        if first.is_empty() && all.is_empty() {
            first = data.copy_to_bytes(length);
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.put(data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

const JSON_TYPE: &[u8] = b"application/json";

/// Content types that tools send by default; the first is from `curl -d`.
const DEFAULT_TOOL_TYPES: [&[u8]; 2] = [b"application/x-www-form-urlencoded", b"text/plain"];

/// Whether a body of this content type may be JSON. The defaults of tools are accepted; any other type that is not
/// JSON is an error.
///
/// A page of another site may send these types without a preflight. `Access` refuses such pages by the
/// headers of the browser, and accepts only JSON from browsers.
pub(crate) fn may_be_json(said: &[u8]) -> bool {
    // Most clients write it like this.
    said == JSON_TYPE
        || is_json_type(said)
        || DEFAULT_TOOL_TYPES.iter().any(|known| kind(said).eq_ignore_ascii_case(known))
}

/// Whether a content type says that the body is JSON.
pub(crate) fn is_json(said: &HeaderValue) -> bool {
    is_json_type(said.as_bytes())
}

fn is_json_type(said: &[u8]) -> bool {
    let kind = kind(said);
    let (start, end) = (kind.get(..12), kind.len().checked_sub(5).and_then(|at| kind.get(at..)));
    let is_kind_of_json = start.is_some_and(|it| it.eq_ignore_ascii_case(b"application/"))
        && end.is_some_and(|it| it.eq_ignore_ascii_case(b"+json"));
    kind.eq_ignore_ascii_case(JSON_TYPE) || is_kind_of_json
}

/// Returns a content type without its parameters.
fn kind(said: &[u8]) -> &[u8] {
    said.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Parses a body that is an object with these fields.
pub(crate) fn read<'b, T: Deserialize<'b>>(body: &'b [u8], fields: &[&str]) -> Result<T, Problem> {
    // Serde would read a list as a struct; only objects are accepted.
    match body.trim_ascii_start().first() {
        Some(b'[' | b'"' | b'0'..=b'9' | b'-' | b't' | b'f' | b'n') => {
            serde_json::from_slice::<serde::de::IgnoredAny>(body).map_err(|error| worded(&error))?;
            Err(Problem::bad_request(format!("the body must be a JSON object with {}", listed(fields))))
        }
        Some(_) => match std::str::from_utf8(body) {
            // One validation of the body is cheaper than one of each string.
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(body),
        }
        .map_err(|error| worded(&error)),
        None => Err(Problem::bad_request(format!(
            "the body is empty; send a JSON object with {}",
            listed(fields)
        ))),
    }
}

fn worded(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    // The message ends with the position, which is printed first instead.
    let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _place)| what);
    let place = format!("line {}, column {}", error.line(), error.column());
    if let Some(rest) = what.strip_prefix("unknown field `") {
        let (unknown, expected) = rest.rsplit_once("`, expected").unwrap_or((rest, ""));
        let fields: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        let meant = nearest(unknown, fields.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
        return Problem::bad_request(format!(
            "{place}: unknown field `{}`; {meant}the fields are {}",
            quoted(unknown),
            listed(&fields)
        ));
    }
    Problem::bad_request(match error.classify() {
        Category::Data => format!("{place}: {}", quoted_long(what)),
        Category::Syntax | Category::Eof | Category::Io => {
            format!("{place}: this is not JSON: {}", quoted_long(what))
        }
    })
}

/// Returns the first characters of a text from the request.
pub(crate) fn quoted(text: &str) -> String {
    cut(text, MAX_QUOTED_CHARS)
}

/// Truncates a message of the parser, which may quote the request.
fn quoted_long(text: &str) -> String {
    cut(text, 6 * MAX_QUOTED_CHARS)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// `a`, `b` and `c`.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_not_json_is_recognized_by_its_type() {
        for (kind, is) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/plain", true),
            ("Text/Plain;charset=UTF-8", true),
            ("application/x-www-form-urlencoded", true),
            ("multipart/form-data; boundary=x", false),
            ("text/html", false),
            ("text/x+json", false),
            ("application/jsonp", false),
            ("", false),
            ("+json", false),
        ] {
            assert_eq!(may_be_json(kind.as_bytes()), is, "{kind}");
        }
    }
}
