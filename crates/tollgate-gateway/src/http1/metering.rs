//! Shows a response to the meters of its request, which find the cost of the request in it (`settle`).
//!
//! Most requests have no meters: nothing is collected or copied for them. The meters see what they see in the tower layer:
//! no hop-by-hop headers, and trailers also if the client does not get them.

use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::{EMPTY_HEADER, Header, Status};
use smallvec::SmallVec;
use tollgate::Policy;
use tollgate_http::{HeaderLines, MeteredParts, RawAdmission, ResponsePart};
use tollgate_net::http1::{MAX_HEADERS, ResponseBody, ResponseHead};

use super::download::Nominated;
use super::request::HeadLines;
use crate::detached::HeldSlots;
use crate::head;

/// The number of headers that are collected without a heap allocation.
const INLINE_HEADERS: usize = 16;

/// The meters of a request, kept by its admission or by the slots that outlive its client.
pub(super) trait Meters {
    fn read<H: HeaderLines>(&mut self, part: &ResponsePart<'_, H>);
}

impl Meters for RawAdmission {
    fn read<H: HeaderLines>(&mut self, part: &ResponsePart<'_, H>) {
        self.observe_part(part);
    }
}

impl Meters for HeldSlots {
    fn read<H: HeaderLines>(&mut self, part: &ResponsePart<'_, H>) {
        self.observe_part(part);
    }
}

/// The part of a response that has arrived and was not read by the meters yet.
#[derive(Debug)]
pub(super) struct ResponseMeter {
    reads_body: bool,
    /// The trailers so far. The decoder of the chunks bounds their length.
    trailers: Vec<u8>,
}

impl ResponseMeter {
    /// Returns `None` for a request whose cost is not in its response. Few policies settle costs.
    pub(super) fn of(policy: &Policy, admission: &RawAdmission) -> Option<Box<Self>> {
        let metered = if policy.settles() { admission.metered() } else { MeteredParts::None };
        let reads_body = metered == MeteredParts::Body;
        (metered != MeteredParts::None).then(|| Box::new(Self { reads_body, trailers: Vec::new() }))
    }

    /// Whether the cost may be in the body, which must not be compressed.
    pub(super) const fn reads_body(&self) -> bool {
        self.reads_body
    }

    fn read_trailers(&mut self, meters: &mut impl Meters, bytes: &[u8], is_end: bool) {
        self.trailers.extend_from_slice(bytes);
        if !is_end {
            return;
        }
        let mut space = [EMPTY_HEADER; MAX_HEADERS];
        if let Ok(Status::Complete((_, lines))) = httparse::parse_headers(&self.trailers, &mut space) {
            let mut trailers = HeaderMap::new();
            for line in lines {
                if let (Ok(name), Ok(value)) =
                    (HeaderName::from_bytes(line.name.as_bytes()), HeaderValue::from_bytes(line.value))
                {
                    trailers.append(name, value);
                }
            }
            head::strip_trailers(&mut trailers);
            meters.read(&ResponsePart::Trailers(&trailers));
        }
    }
}

/// Shows the headers to the meters that pass the gateway.
fn read_head(meters: &mut impl Meters, response: &ResponseHead<'_, '_>, nominated: &Nominated) {
    // A length beside chunks has no meaning.
    let is_chunked = response.body == ResponseBody::Chunked;
    let is_kept = |it: &&Header<'_>| {
        !head::is_hop_by_hop_in_any_case(it.name)
            && !nominated.contains(it.name)
            && (!is_chunked || !head::is_name(it.name, "content-length"))
    };
    let kept: SmallVec<[Header<'_>; INLINE_HEADERS]> =
        response.headers.iter().filter(is_kept).copied().collect();
    meters.read(&ResponsePart::Head(&HeadLines(&kept)));
}

/// Takes a response: writes its head for the client, and shows it to the meters of the request, if there are any.
pub(super) struct Recipient<'r, M, W> {
    pub(super) meters: &'r mut M,
    pub(super) meter: Option<&'r mut ResponseMeter>,
    /// Appends the head for the client, if there is a client.
    pub(super) write_head: W,
}

impl<M: Meters, W: Fn(&mut Vec<u8>, &ResponseHead<'_, '_>, &Nominated, &M)> Recipient<'_, M, W> {
    pub(super) fn take_head(&mut self, head: &ResponseHead<'_, '_>, out: &mut Vec<u8>) {
        let nominated = Nominated::of(head);
        if self.meter.is_some() {
            read_head(self.meters, head, &nominated);
        }
        (self.write_head)(out, head, &nominated, self.meters);
    }

    /// Takes data of the body.
    pub(super) fn take_data(&mut self, data: &[u8]) {
        if let Some(meter) = &self.meter
            && meter.reads_body
        {
            self.meters.read(&ResponsePart::<HeadLines<'_, '_>>::Data(data));
        }
    }

    /// Takes bytes of the trailers. `is_end`: the trailers are complete.
    pub(super) fn take_trailers(&mut self, bytes: &[u8], is_end: bool) {
        if let Some(meter) = &mut self.meter {
            meter.read_trailers(self.meters, bytes, is_end);
        }
    }
}
