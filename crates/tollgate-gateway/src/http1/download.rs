//! The response of an upstream on its way to the client: its head is written anew, and its body is framed anew.

use http::HeaderName;
use smallvec::SmallVec;
use tollgate_http::RawAdmission;
use tollgate_net::http1::{
    Buffer, ChunkedDecoder, LAST_CHUNK, ResponseBody, ResponseHead, ResponseHeadError, header_space,
    write_chunk,
};

use super::metering::{Meters, Recipient};
use super::{write_connection_lines, write_line};
use crate::head;

/// The initial capacity for a response. Most heads are shorter, also with rate-limit headers.
const INITIAL_RESPONSE_BYTES: usize = 1024;

/// The rest of a response.
#[derive(Debug)]
pub(super) enum Download {
    /// The head has not arrived completely.
    Head,
    /// The body ends after this number of bytes.
    Length(u64),
    Chunked(ChunkedDecoder),
    /// The body ends with the connection.
    UntilClose,
    Done,
}

/// The reason why a response was aborted.
#[derive(Debug, thiserror::Error)]
pub(super) enum DownloadError {
    #[error("{0}")]
    Head(#[from] ResponseHeadError),
    #[error("the head of the response is too long")]
    TooLong,
    #[error("{0}")]
    Chunk(#[from] tollgate_net::http1::ChunkError),
}

/// The part of a head that the exchange acts on.
pub(super) struct HeadReport {
    pub(super) status: u16,
    /// Whether the connection to the upstream can be used again after the response.
    pub(super) is_reusable: bool,
}

impl Download {
    /// Takes bytes of the upstream and appends the body for the client to `out`, after the head that the recipient
    /// appends. `is_head`: the response has no body. Returns the report of the head when it is complete.
    pub(super) fn take<M: Meters>(
        &mut self,
        input: &mut Buffer,
        is_head: bool,
        out: &mut Vec<u8>,
        mut recipient: Recipient<'_, M, impl Fn(&mut Vec<u8>, &ResponseHead<'_, '_>, &Nominated, &M)>,
    ) -> Result<Option<HeadReport>, DownloadError> {
        let mut report = None;
        while matches!(self, Self::Head) {
            let mut space = header_space();
            let Some((head, length)) = ResponseHead::parse(input.unread(), &mut space, is_head)? else {
                return if input.grow() { Ok(None) } else { Err(DownloadError::TooLong) };
            };
            // The final response follows (RFC 9110, 15.2).
            if head.status >= 200 {
                recipient.take_head(&head, out);
                report = Some(HeadReport { status: head.status, is_reusable: head.is_reusable });
                *self = match head.body {
                    ResponseBody::None => Self::Done,
                    ResponseBody::Length(length) => Self::Length(length),
                    ResponseBody::Chunked => Self::Chunked(ChunkedDecoder::new()),
                    ResponseBody::UntilClose => Self::UntilClose,
                };
            }
            input.consume(length);
        }
        self.take_body(input, out, &mut recipient)?;
        Ok(report)
    }

    /// Returns the number of bytes that are known to follow.
    pub(super) const fn min_bytes_left(&self) -> u64 {
        match self {
            Self::Length(left) => *left,
            _ => 0,
        }
    }

    fn take_body<M: Meters>(
        &mut self,
        input: &mut Buffer,
        out: &mut Vec<u8>,
        recipient: &mut Recipient<'_, M, impl Fn(&mut Vec<u8>, &ResponseHead<'_, '_>, &Nominated, &M)>,
    ) -> Result<(), DownloadError> {
        match self {
            Self::Head | Self::Done => {}
            Self::Length(left) => {
                let unread = input.unread();
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(unread.len());
                recipient.take_data(&unread[..count]);
                out.extend_from_slice(&unread[..count]);
                *left -= count as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                input.consume(count);
            }
            Self::Chunked(decoder) => {
                while !input.is_empty() && !decoder.is_done() {
                    let is_trailer = decoder.is_in_trailers();
                    let (used, data) = decoder.decode(input.unread())?;
                    if is_trailer {
                        recipient.take_trailers(&input.unread()[..used], decoder.is_done());
                    } else {
                        recipient.take_data(data);
                    }
                    write_chunk(out, data);
                    input.consume(used);
                }
                if decoder.is_done() {
                    out.extend_from_slice(LAST_CHUNK);
                    *self = Self::Done;
                }
            }
            Self::UntilClose => {
                let count = input.unread().len();
                recipient.take_data(input.unread());
                write_chunk(out, input.unread());
                input.consume(count);
            }
        }
        Ok(())
    }

    /// Ends the response when the upstream has closed the connection. `false`: it is incomplete.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) -> bool {
        let is_complete = matches!(self, Self::UntilClose);
        if is_complete {
            out.extend_from_slice(LAST_CHUNK);
            *self = Self::Done;
        }
        is_complete
    }
}

/// Appends the head of a response for the client. `is_last`: the connection ends after the response.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    (head, nominated): (&ResponseHead<'_, '_>, &Nominated),
    admission: &RawAdmission,
    is_last: bool,
) {
    out.reserve(INITIAL_RESPONSE_BYTES);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend([100, 10, 1].map(|unit| digit(head.status / unit)));
    out.push(b' ');
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    let is_framed_anew = matches!(head.body, ResponseBody::Chunked | ResponseBody::UntilClose);
    // A 204 has no length (RFC 9110, 8.6): some clients would wait for the body.
    let drops_length = is_framed_anew || head.status == 204;
    let (mut has_length, mut has_date) = (false, false);
    for header in head.headers {
        let name = header.name;
        let is_removed = match name.len() {
            14 if head::is_name(name, "content-length") => {
                drops_length || std::mem::replace(&mut has_length, true)
            }
            4 if head::is_name(name, "date") => {
                has_date = true;
                false
            }
            _ => head::is_hop_by_hop_in_any_case(name),
        } || admission.replaces(name)
            || nominated.contains(name);
        if !is_removed {
            let start = out.len();
            write_line(out, name, header.value);
            out[start..start + name.len()].make_ascii_lowercase();
        }
    }
    admission.write_headers(out);
    if is_framed_anew {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if has_date {
        if is_last {
            out.extend_from_slice(b"connection: close\r\n");
        }
    } else {
        write_connection_lines(out, is_last);
    }
    out.extend_from_slice(b"\r\n");
}

#[allow(clippy::cast_possible_truncation, reason = "a digit")]
const fn digit(number: u16) -> u8 {
    b'0' + (number % 10) as u8
}

/// The headers that `Connection` nominates (`head::strip_nominated`). Most responses nominate nothing.
pub(super) struct Nominated(SmallVec<[HeaderName; 2]>);

impl Nominated {
    pub(super) fn of(response: &ResponseHead<'_, '_>) -> Self {
        let mut nominated = SmallVec::new();
        let lines = response.headers.iter().filter(|it| head::is_name(it.name, "connection"));
        for option in lines.flat_map(|it| it.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close") {
                continue;
            }
            if let Ok(name) = HeaderName::from_bytes(option)
                && head::may_be_listed(&name)
            {
                nominated.push(name);
            }
        }
        Self(nominated)
    }

    /// Whether a name, in any case, is nominated.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|it| it.as_str().eq_ignore_ascii_case(name))
    }
}
