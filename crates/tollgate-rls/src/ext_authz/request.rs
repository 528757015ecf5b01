//! A `CheckRequest`: the request that Envoy describes.
//!
//! Clients choose paths, methods and headers, so any bytes are accepted there: text that is not UTF-8 is
//! converted, and control characters in a header become spaces. Envoy leaves such requests out or replaces
//! the bytes; other callers may not.
//!
//! Envoy sends the headers as a map, in which lines of one header are joined by commas, or with
//! `encode_raw_headers` as a list of lines. Both are read.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::Request;
use tollgate::policy::{are_lookalikes, without_port};
use tollgate_grpc::call::Refusal;
use tollgate_grpc::wire::{Value, WireError};

use crate::request::each;

/// The maximum number of header lines. Envoy accepts 100 by default.
const MAX_HEADER_LINES: usize = 2_000;

/// A call, before its headers are collected.
#[derive(Debug, Default)]
pub(super) struct CheckRequest<'m> {
    peer: Option<IpAddr>,
    method: Cow<'m, str>,
    target: Cow<'m, str>,
    query: Cow<'m, str>,
    host: Cow<'m, str>,
    size: Option<u64>,
    lines: Vec<(&'m [u8], &'m [u8])>,
    has_too_many_lines: bool,
}

impl<'m> CheckRequest<'m> {
    /// Reads a message.
    pub(super) fn read(message: &'m [u8]) -> Result<Self, Refusal> {
        let mut check = Self::default();
        let mut has_request = false;
        each(message, |number, attributes| {
            if number != 1 {
                return Ok(());
            }
            each(attributes.bytes()?, |number, value| match number {
                1 => check.read_source(value.bytes()?),
                4 => each(value.bytes()?, |number, value| {
                    if number != 2 {
                        return Ok(());
                    }
                    has_request = true;
                    check.read_http(value.bytes()?)
                }),
                _ => Ok(()),
            })
        })?;
        if !has_request {
            return Err(Refusal::invalid_argument(
                "the call describes no HTTP request: `attributes.request.http` is missing, as for a network filter"
                    .to_owned(),
            ));
        }
        Ok(check)
    }

    /// Reads the address of the peer that Envoy saw. Another kind of address than that of a socket is
    /// unknown.
    fn read_source(&mut self, peer: &'m [u8]) -> Result<(), WireError> {
        each(peer, |number, address| {
            if number != 1 {
                return Ok(());
            }
            each(address.bytes()?, |number, socket| {
                if number != 1 {
                    return Ok(());
                }
                each(socket.bytes()?, |number, value| {
                    if number == 2 {
                        let text = std::str::from_utf8(value.bytes()?).unwrap_or_default();
                        self.peer = text.parse().ok();
                    }
                    Ok(())
                })
            })
        })
    }

    fn read_http(&mut self, http: &'m [u8]) -> Result<(), WireError> {
        each(http, |number, value| {
            match number {
                2 => self.method = text(value)?,
                3 => self.read_line(value.bytes()?, 2)?,
                4 => self.target = text(value)?,
                5 => self.host = text(value)?,
                7 => self.query = text(value)?,
                // Negative: unknown.
                9 => self.size = i64::try_from(value.varint()?).ok().and_then(|it| u64::try_from(it).ok()),
                13 => each(value.bytes()?, |number, line| match number {
                    1 => self.read_line(line.bytes()?, 3),
                    _ => Ok(()),
                })?,
                _ => {}
            }
            Ok(())
        })
    }

    /// Reads a name and a value, which is also in the field `raw` of a `HeaderValue`.
    fn read_line(&mut self, line: &'m [u8], raw: u32) -> Result<(), WireError> {
        let (mut name, mut content) = (&[][..], &[][..]);
        each(line, |number, value| {
            match number {
                1 => name = value.bytes()?,
                2 => content = value.bytes()?,
                number if number == raw => content = value.bytes()?,
                _ => {}
            }
            Ok(())
        })?;
        if self.lines.len() >= MAX_HEADER_LINES {
            self.has_too_many_lines = true;
        } else {
            self.lines.push((name, content));
        }
        Ok(())
    }

    /// Collects the headers. The error is the reason why the request must be denied.
    pub(super) fn into_request(self) -> Result<DescribedRequest<'m>, String> {
        if self.has_too_many_lines {
            return Err(format!("the request has more than {MAX_HEADER_LINES} header lines"));
        }
        let mut headers = HeaderMap::with_capacity(self.lines.len());
        for (name, value) in self.lines {
            // `:path` and its like are in fields of their own.
            let Ok(name) = HeaderName::from_bytes(name) else { continue };
            let printable: Vec<u8> =
                value.iter().map(|&byte| if byte < b' ' || byte == 0x7f { b' ' } else { byte }).collect();
            let Ok(value) = HeaderValue::from_bytes(&printable) else { continue };
            if headers.try_append(name, value).is_err() {
                return Err("the request has too many headers".to_owned());
            }
        }
        let (path, query) = split(self.target);
        let query = query.or(Some(self.query).filter(|it| !it.is_empty()));
        let host = Some(self.host).filter(|it| !it.is_empty());
        let method = if self.method.is_empty() { Cow::Borrowed("GET") } else { self.method };
        let (peer, size) = (self.peer, self.size);
        Ok(DescribedRequest { method, path, query, host, headers, peer, client: None, size })
    }
}

/// Splits a target into its path and its query. A target without a path is `/`.
fn split(target: Cow<'_, str>) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    let target = match target.find('#') {
        Some(at) => Cow::Owned(target[..at].to_owned()),
        None => target,
    };
    let (path, query) = match target.find('?') {
        Some(at) => (Cow::Owned(target[..at].to_owned()), Some(Cow::Owned(target[at + 1..].to_owned()))),
        None => (target, None),
    };
    (if path.is_empty() { Cow::Borrowed("/") } else { path }, query)
}

/// Text from a client, which may be any bytes.
fn text(value: Value<'_>) -> Result<Cow<'_, str>, WireError> {
    value.bytes().map(String::from_utf8_lossy)
}

/// The described request, as a policy sees it.
#[derive(Debug)]
pub(super) struct DescribedRequest<'m> {
    method: Cow<'m, str>,
    path: Cow<'m, str>,
    query: Option<Cow<'m, str>>,
    host: Option<Cow<'m, str>>,
    pub(super) headers: HeaderMap,
    /// The peer that Envoy saw.
    pub(super) peer: Option<IpAddr>,
    client: Option<IpAddr>,
    size: Option<u64>,
}

impl DescribedRequest<'_> {
    /// Sets the client address.
    pub(super) fn with_client(self, client: Option<IpAddr>) -> Self {
        Self { client, ..self }
    }

    fn host_line(&self) -> Option<&str> {
        self.headers.get(HOST).and_then(|host| host.to_str().ok())
    }
}

impl Request for DescribedRequest<'_> {
    fn method(&self) -> &str {
        &self.method
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref().or_else(|| self.host_line())
    }

    fn other_host(&self) -> Option<&str> {
        let host = self.host.as_deref().map(without_port)?;
        self.host_line().filter(|line| !host.eq_ignore_ascii_case(without_port(line)))
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_line(name, 0)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        self.headers.get_all(name).iter().nth(index).map(HeaderValue::as_bytes)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        self.headers.get_all(name).iter().for_each(|line| visit(line.as_bytes()));
    }

    fn visit_lookalikes<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        let lines = self.headers.iter().filter(|(known, _)| are_lookalikes(known.as_str(), name));
        lines.for_each(|(_, line)| visit(line.as_bytes()));
    }

    fn body_length(&self) -> Option<u64> {
        let written = self.headers.get("content-length").and_then(|it| it.to_str().ok()?.trim().parse().ok());
        written.or(self.size)
    }
}
