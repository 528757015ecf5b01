//! What requests turn out to have cost, found while their answers pass.
//!
//! An answer is looked at as it goes by: nothing of it is held back, copied or changed, and
//! what is remembered of it does not grow with it. What is not found leaves its limits with
//! what they were charged.
//!
//! - `json`: a number in JSON; `name` and `number` are parts of it.
//! - `byte_order_mark`: a byte order mark before an answer.
//! - `events`: JSON in a stream of events.
//!
//! Not here: charging it (`deferred`).

mod byte_order_mark;
mod events;
mod json;
mod name;
mod number;

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Buf;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use smallvec::SmallVec;
use tollgate::policy::{Settle, whole_units};
use tollgate::{Clock, Policy, Receipt, Span, Timestamp};

use self::byte_order_mark::Start;
use self::events::Events;
use self::json::Scanner;

/// Into how many pieces a frame may be divided and still be looked at.
const MAX_FRAME_SEGMENTS: usize = 16;

/// What the limits of one request want to know about its answer.
pub(crate) struct Meters {
    list: SmallVec<[Meter; 1]>,
    clock: Arc<dyn Clock>,
    /// When the service behind was called. `None`: it was not.
    begun: Option<Timestamp>,
}

/// One thing to be found out, and for whom.
struct Meter {
    settle: Settle,
    limits: SmallVec<[Box<str>; 2]>,
    reading: MeterState,
}

enum MeterState {
    /// What a header or a trailer said.
    Header(Option<u64>),
    /// `None` for events: the answer is one text, or several.
    Json(Scanner, Start, Option<Events>),
    Time,
}

/// Names of limits and what a request cost each.
pub(crate) type Costs = SmallVec<[(Box<str>, u64); 2]>;

impl Meters {
    /// Of the limits that were charged and settle. Those of one source share a meter.
    pub(crate) fn of(receipt: &Receipt, policy: &Policy, clock: &Arc<dyn Clock>) -> Self {
        let mut list = SmallVec::<[Meter; 1]>::new();
        if policy.settles() {
            for limit in receipt.limits().filter_map(|name| policy.limit(name)) {
                let Some(settle) = limit.settle() else { continue };
                match list.iter_mut().find(|meter| meter.settle == *settle) {
                    Some(meter) => meter.limits.push(limit.name().into()),
                    None => list.extend(Meter::new(settle, limit.name())),
                }
            }
        }
        Self { list, clock: Arc::clone(clock), begun: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the answer's body has to be readable.
    pub(crate) fn read_bodies(&self) -> bool {
        self.list.iter().any(|meter| matches!(meter.reading, MeterState::Json(..)))
    }

    /// The service behind is called.
    pub(crate) fn begin(&mut self) {
        if !self.is_empty() {
            self.begun = Some(self.clock.now());
        }
    }

    /// The service behind was not reached after all.
    pub(crate) const fn was_not_reached(&mut self) {
        self.begun = None;
    }

    /// The head of the answer.
    pub(crate) fn head(&mut self, headers: &HeaderMap) {
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

    /// A frame of its body.
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

    /// Headers or trailers. The later ones are believed.
    fn fields(&mut self, fields: &HeaderMap) {
        for meter in &mut self.list {
            if let (Settle::Response(name), MeterState::Header(found)) = (&meter.settle, &mut meter.reading) {
                let value = fields.get(&**name).map(HeaderValue::as_bytes);
                let units = value.and_then(|value| whole_units(value.trim_ascii()));
                *found = units.or(*found);
            }
        }
    }

    /// It is over: what it cost each limit of which that is known.
    pub(crate) fn costs(&self) -> Costs {
        let took = self.begun.map(|begun| self.clock.now().since(begun));
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
    /// `None` for what this version knows nothing of: its limits keep what they were charged.
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
            // Behind a gap nothing is where it seems to be.
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

fn is_encoded(headers: &HeaderMap) -> bool {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    encodings.any(|it| !it.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let essence = kind.split(|it| *it == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
