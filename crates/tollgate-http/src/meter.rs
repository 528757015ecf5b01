//! Measures the final cost of a request while its response passes.
//!
//! A response is observed as it passes: it is not delayed, copied or changed, and the state does
//! not grow with its size. If no cost is found, the charge of the limit stays as it is.
//!
//! - `json`: a number in JSON; `name` and `number` are its parts.
//! - `byte_order_mark`: skips a byte order mark at the start of a response.
//! - `events`: JSON in a stream of server-sent events.
//!
//! Not here: settling the cost (`deferred`).

mod byte_order_mark;
mod events;
mod json;
mod name;
mod number;

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Buf;
use http_body::Frame;
use smallvec::SmallVec;
use tollgate::policy::{Settle, whole_units};
use tollgate::{Clock, Policy, Receipt, Span, Timestamp};

use self::byte_order_mark::Start;
use self::events::Events;
use self::json::Scanner;
use crate::header_lines::HeaderLines;

/// The number of segments of a frame that are read; a frame with more is not scanned completely.
const MAX_FRAME_SEGMENTS: usize = 16;

/// The meters of one request.
pub(crate) struct Meters {
    list: SmallVec<[Meter; 1]>,
    clock: Arc<dyn Clock>,
    /// When the inner service was called; `None` if it was not.
    started_at: Option<Timestamp>,
}

/// The parts of a response in which the cost of its request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeteredParts {
    /// The response says nothing about the cost.
    None,
    /// Headers and trailers.
    Fields,
    /// Headers, trailers and the body, which must not be compressed.
    Body,
}

/// A part of a response, which may state the cost of its request.
#[derive(Debug)]
pub enum ResponsePart<'r, H> {
    /// The headers.
    Head(&'r H),
    /// Data of the body.
    Data(&'r [u8]),
    /// All trailers.
    Trailers(&'r H),
}

/// A cost to be measured, and the limits that it settles.
struct Meter {
    settle: Settle,
    limits: SmallVec<[Box<str>; 2]>,
    reading: MeterState,
}

enum MeterState {
    /// The value of a header or trailer.
    Header(Option<u64>),
    /// A number in JSON. `Some` events: the response is a stream of events, not one JSON text.
    Json(Scanner, Start, Option<Events>),
    Time,
}

/// Names of limits, each with the cost of the request.
pub(crate) type Costs = SmallVec<[(Box<str>, u64); 2]>;

impl Meters {
    /// Creates the meters for the charged limits that settle. Limits with the same source share a
    /// meter.
    pub(crate) fn of(receipt: Option<&Receipt>, policy: &Policy, clock: &Arc<dyn Clock>) -> Self {
        let mut list = SmallVec::<[Meter; 1]>::new();
        if let Some(receipt) = receipt.filter(|_| policy.settles()) {
            for limit in receipt.limits().filter_map(|name| policy.limit(name)) {
                let Some(settle) = limit.settle() else { continue };
                match list.iter_mut().find(|meter| meter.settle == *settle) {
                    Some(meter) => meter.limits.push(limit.name().into()),
                    None => list.extend(Meter::new(settle, limit.name())),
                }
            }
        }
        Self { list, clock: Arc::clone(clock), started_at: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a meter reads the response body.
    pub(crate) fn read_bodies(&self) -> bool {
        self.list.iter().any(|meter| matches!(meter.reading, MeterState::Json(..)))
    }

    /// Returns the parts of a response that the meters read.
    pub(crate) fn parts(&self) -> MeteredParts {
        let is_timed = |meter: &Meter| matches!(meter.reading, MeterState::Time);
        if self.read_bodies() {
            MeteredParts::Body
        } else if self.list.iter().all(is_timed) {
            MeteredParts::None
        } else {
            MeteredParts::Fields
        }
    }

    /// Records the time at which the inner service is called.
    pub(crate) fn start(&mut self) {
        if !self.is_empty() {
            self.started_at = Some(self.clock.now());
        }
    }

    /// Records that the inner service was not reached.
    pub(crate) const fn was_not_reached(&mut self) {
        self.started_at = None;
    }

    /// Reads the head of the response.
    pub(crate) fn head(&mut self, headers: &impl HeaderLines) {
        for meter in &mut self.list {
            if let MeterState::Json(scanner, _, events) = &mut meter.reading {
                if is_encoded(headers) {
                    scanner.give_up();
                } else if is_event_stream(headers) {
                    *events = Some(Events::new());
                }
            }
        }
        self.fields(headers);
    }

    /// Reads a frame of the response body.
    pub(crate) fn frame<D: Buf>(&mut self, frame: &Frame<D>) {
        if let Some(trailers) = frame.trailers_ref() {
            self.fields(trailers);
        } else if let Some(data) = frame.data_ref()
            && self.read_bodies()
        {
            let mut pieces = [IoSlice::new(&[]); MAX_FRAME_SEGMENTS];
            let count = data.chunks_vectored(&mut pieces);
            let pieces = pieces.get(..count).unwrap_or_default();
            let is_whole = pieces.iter().map(|piece| piece.len()).sum::<usize>() == data.remaining();
            for meter in &mut self.list {
                meter.data(pieces, is_whole);
            }
        }
    }

    /// Reads a part of the response.
    pub(crate) fn part<H: HeaderLines>(&mut self, part: &ResponsePart<'_, H>) {
        match part {
            ResponsePart::Head(headers) => self.head(*headers),
            ResponsePart::Data(data) => {
                let pieces = &[IoSlice::new(data)];
                self.list.iter_mut().for_each(|meter| meter.data(pieces, true));
            }
            ResponsePart::Trailers(trailers) => self.fields(*trailers),
        }
    }

    /// Reads headers or trailers. Later values replace earlier ones.
    fn fields(&mut self, fields: &impl HeaderLines) {
        for meter in &mut self.list {
            if let (Settle::Response(name), MeterState::Header(found)) = (&meter.settle, &mut meter.reading) {
                let units = fields.first_line(name).and_then(|value| whole_units(value.trim_ascii()));
                *found = units.or(*found);
            }
        }
    }

    /// Returns the costs at the end of the request, for each limit whose cost is known.
    pub(crate) fn costs(&self) -> Costs {
        let took = self.started_at.map(|started_at| self.clock.now().since(started_at));
        let mut costs = Costs::new();
        for meter in &self.list {
            let cost = took.map_or(Some(0), |took| meter.cost(took));
            costs.extend(
                cost.into_iter().flat_map(|it| meter.limits.iter().map(move |name| (name.clone(), it))),
            );
        }
        costs
    }
}

impl Meter {
    /// Returns `None` for a source that this version does not know: its limits keep their charge.
    fn new(settle: &Settle, limit: &str) -> Option<Self> {
        let reading = match settle {
            Settle::Response(_) => MeterState::Header(None),
            Settle::Json(path) => MeterState::Json(Scanner::new(Arc::clone(path)), Start::default(), None),
            Settle::Time(_) => MeterState::Time,
            _ => return None,
        };
        Some(Self { settle: settle.clone(), limits: SmallVec::from_iter([limit.into()]), reading })
    }

    fn data(&mut self, pieces: &[IoSlice<'_>], is_whole: bool) {
        let MeterState::Json(scanner, start, events) = &mut self.reading else { return };
        for text in pieces.iter().flat_map(|piece| start.text(piece)) {
            match events {
                Some(events) => events.read(text, scanner),
                None => scanner.read(text),
            }
        }
        if !is_whole {
            // Data is missing, so the position in the text is unknown.
            scanner.give_up();
        }
    }

    fn cost(&self, took: Span) -> Option<u64> {
        match (&self.reading, &self.settle) {
            (MeterState::Header(found), _) => *found,
            (MeterState::Json(scanner, ..), _) => scanner.found(),
            (MeterState::Time, Settle::Time(each)) => {
                Some(took.as_micros().div_ceil(each.as_micros().max(1)).max(1))
            }
            (MeterState::Time, _) => None,
        }
    }
}

fn is_encoded(headers: &impl HeaderLines) -> bool {
    headers.lines("content-encoding").any(|it| !it.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn is_event_stream(headers: &impl HeaderLines) -> bool {
    let kind = headers.first_line("content-type").unwrap_or_default();
    let essence = kind.split(|it| *it == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
