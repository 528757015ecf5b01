//! The head of a request for its upstream, written from the head of the client.
//!
//! It has the same headers as a request that hyper forwards (`head::prepare`): hop-by-hop headers, headers that replace
//! path, method or host, marks of the limiter and lookalikes are removed, and forwarding headers are added.

use httparse::{EMPTY_HEADER, Header};
use smallvec::SmallVec;
use tollgate::Policy;
use tollgate::policy::path;
use tollgate_http::{HeaderLines, RawAdmission};
use tollgate_net::http1::{RequestBody, RequestHead};

use super::metering::ResponseMeter;
use super::write_line;
use crate::head::{self, Caller};
use crate::host::is_host;
use crate::override_headers::{OverrideHeaders, may_override};
use crate::settings::Forwarding;

/// The length of names of removed headers that are converted without a heap allocation.
const MAX_REMOVED_NAME_BYTES: usize = 32;

/// The room for the headers that are added; they are usually shorter.
const FORWARDING_BYTES: usize = 256;

/// The initial capacity for names in lower case; most names are shorter.
const INITIAL_NAME_BYTES: usize = 32;

/// The header lines of a head in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct HeadLines<'h, 'b>(pub &'h [Header<'b>]);

impl HeaderLines for HeadLines<'_, '_> {
    fn lines<'h>(&'h self, name: &str) -> impl DoubleEndedIterator<Item = &'h [u8]> {
        let is_same = move |header: &&Header<'_>| {
            header.name.len() == name.len() && header.name.eq_ignore_ascii_case(name)
        };
        self.0.iter().filter(is_same).map(|header| header.value)
    }

    fn first_line(&self, name: &str) -> Option<&[u8]> {
        self.lines(name).next()
    }
}

/// Removes the headers that must not have an effect on the decision. `false`: the request is left to hyper.
pub(super) fn prepare(request: &mut RequestHead<'_, '_>, override_headers: &OverrideHeaders) -> bool {
    if !is_host(request.host) {
        return false;
    }
    let mut cookies = 0;
    for header in request.headers.iter_mut() {
        match header.name.as_bytes().first().map_or(0, u8::to_ascii_lowercase) {
            letter
                if may_override(letter, header.name.len())
                    && lowercase(header.name, |name| override_headers.removes(name)) =>
            {
                *header = EMPTY_HEADER;
            }
            b't' if is_mark(header.name) => *header = EMPTY_HEADER,
            b'c' if header.name.eq_ignore_ascii_case("cookie") => cookies += 1,
            _ => {}
        }
    }
    // Several cookie lines are joined, which only HTTP/2 permits.
    cookies <= 1
}

/// Whether only the limiter may set this header.
fn is_mark(name: &str) -> bool {
    name.eq_ignore_ascii_case("tollgate-soft") || name.eq_ignore_ascii_case("tollgate-priority")
}

fn lowercase<T>(name: &str, then: impl FnOnce(&str) -> T) -> T {
    let mut lower: SmallVec<[u8; MAX_REMOVED_NAME_BYTES]> = name.as_bytes().into();
    lower.make_ascii_lowercase();
    // A name is ASCII, and stays so.
    then(std::str::from_utf8(&lower).unwrap_or_default())
}

/// Appends the head for the upstream.
pub(super) fn write(
    out: &mut Vec<u8>,
    request: &RequestHead<'_, '_>,
    caller: &Caller,
    forwarding: Forwarding,
    (policy, admission, meter): (&Policy, &RawAdmission, Option<&ResponseMeter>),
) {
    // The head for the upstream is about as long as the head of the client.
    out.reserve(request.bytes.len() + FORWARDING_BYTES);
    write_request_line(out, request);
    // A compressed body would hide the cost from the meters.
    let is_uncompressed = meter.is_some_and(ResponseMeter::reads_body);
    let mut claims = Claims { is_believed: None, has_proto: false, has_host: false };
    // A string in lower case stays a string; bytes would have to be validated again.
    let mut name = String::with_capacity(INITIAL_NAME_BYTES);
    for header in request.headers.iter().filter(|it| !it.name.is_empty()) {
        name.clear();
        name.push_str(header.name);
        name.make_ascii_lowercase();
        let is_kept = !head::is_hop_by_hop(&name)
            && !matches!(&*name, "tollgate_soft" | "tollgate_priority")
            && !policy.reads_lookalike_of(&name)
            && (!is_uncompressed || name != "accept-encoding")
            && (!head::is_claim(&name)
                || claims
                    .keeps(&name, forwarding, || policy.client().trusted_proxies.contains(caller.address)));
        if is_kept {
            write_line(out, &name, header.value);
        }
    }
    write_forwarding(out, request, caller, forwarding, &claims);
    if is_uncompressed {
        write_line(out, "accept-encoding", b"identity");
    }
    if request.body == RequestBody::Chunked {
        write_line(out, "transfer-encoding", b"chunked");
    }
    for (name, value) in [("tollgate-priority", &admission.priority), ("tollgate-soft", &admission.soft)] {
        if let Some(value) = value {
            write_line(out, name, value.as_bytes());
        }
    }
    out.extend_from_slice(b"via: 1.1 tollgate\r\n\r\n");
}

fn write_request_line(out: &mut Vec<u8>, request: &RequestHead<'_, '_>) {
    out.extend_from_slice(request.method.as_bytes());
    out.push(b' ');
    match path::without_dot_segments(request.path) {
        Some(resolved) => out.extend_from_slice(resolved.as_bytes()),
        None => out.extend_from_slice(request.path.as_bytes()),
    }
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// The forwarding headers that the client sent.
struct Claims {
    /// Whether they are believed; `None` if there are none.
    is_believed: Option<bool>,
    has_proto: bool,
    has_host: bool,
}

impl Claims {
    /// Whether a forwarding header of the client stays as it is. The lists are written anew.
    fn keeps(&mut self, name: &str, forwarding: Forwarding, is_trusted: impl FnOnce() -> bool) -> bool {
        if !*self.is_believed.get_or_insert_with(is_trusted) {
            return false;
        }
        let (writes_x_forwarded, writes_forwarded) = writes(forwarding);
        match name {
            "x-forwarded-for" => !writes_x_forwarded,
            "forwarded" => !writes_forwarded,
            "x-forwarded-proto" => {
                self.has_proto = true;
                true
            }
            "x-forwarded-host" => {
                self.has_host = true;
                true
            }
            _ => true,
        }
    }
}

/// Whether `X-Forwarded-*` and `Forwarded` are written.
const fn writes(forwarding: Forwarding) -> (bool, bool) {
    match forwarding {
        Forwarding::XForwarded => (true, false),
        Forwarding::Forwarded => (false, true),
        Forwarding::Both => (true, true),
        Forwarding::Off => (false, false),
    }
}

fn write_forwarding(
    out: &mut Vec<u8>,
    request: &RequestHead<'_, '_>,
    caller: &Caller,
    forwarding: Forwarding,
    claims: &Claims,
) {
    let (writes_x_forwarded, writes_forwarded) = writes(forwarding);
    let is_believed = claims.is_believed == Some(true);
    if writes_x_forwarded {
        write_list(out, "x-forwarded-for", (request, is_believed), caller.address_text.as_bytes());
        if !claims.has_proto {
            write_line(out, "x-forwarded-proto", caller.scheme.as_bytes());
        }
        if !claims.has_host {
            write_line(out, "x-forwarded-host", request.host.as_bytes());
        }
    }
    if writes_forwarded {
        let element = head::forwarded_element(caller, request.host);
        write_list(out, "forwarded", (request, is_believed), element.as_bytes());
    }
}

/// Appends a list header with the members that the client sent, if it is believed, and one more.
fn write_list(
    out: &mut Vec<u8>,
    name: &str,
    (request, is_believed): (&RequestHead<'_, '_>, bool),
    last: &[u8],
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    if is_believed {
        for line in HeadLines(request.headers).lines(name).filter(|it| !it.is_empty()) {
            out.extend_from_slice(line);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(last);
    out.extend_from_slice(b"\r\n");
}
