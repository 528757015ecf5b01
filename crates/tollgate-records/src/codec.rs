//! Records as bytes.
//!
//! The part of a limit that does not change from request to request (name, quota, mode) is written once
//! per segment, as a definition. A record refers to it by its offset in the segment, so that a lookup
//! needs two reads and no table.
//!
//! | record | |
//! |---|---|
//! | 8 bytes | id |
//! | 8 bytes | time in microseconds since 1970 |
//! | 1 byte | kind of decision |
//! | number | marks of the optional parts |
//! | … | numbers and texts (`varint`) |
//!
//! `LimitRecord::key_hash` is not stored: it has a meaning in its process only.
//!
//! Invariant: decoding never panics and allocates no more than a constant multiple of the input.
//! The tests below decode every prefix and random bytes.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::{
    DecisionId, Level, Mode, NodeShed, Outcome, Quota, SignalReading, Signals, Span, Timestamp, Verdict,
};
use tollgate_core::varint::{ReadError, Reader, put, put_bytes};
use tollgate_telemetry::{LimitRecord, Record, RecordFate, ShadowBlock, TraceParent};

use crate::frame::{self, Kind};

/// The maximum number of definitions that a writer remembers. More are written again.
const MAX_DEFINITIONS: usize = 8_192;

const FATES: [RecordFate; 8] = [
    RecordFate::Admitted,
    RecordFate::Refused,
    RecordFate::AllowListed,
    RecordFate::DenyListed,
    RecordFate::AmbiguousPath,
    RecordFate::Blocked,
    RecordFate::Uncountable,
    RecordFate::Shed,
];
const MODES: [Mode; 3] = [Mode::Enforce, Mode::Shadow, Mode::Off];

/// The marks of a record.
mod mark {
    pub(super) const ALLOWED: u64 = 1;
    pub(super) const DEGRADED: u64 = 1 << 1;
    pub(super) const SWITCHED_OFF: u64 = 1 << 2;
    pub(super) const REASON: u64 = 1 << 3;
    pub(super) const PRIORITY: u64 = 1 << 4;
    pub(super) const HOST: u64 = 1 << 5;
    pub(super) const CLIENT: u64 = 1 << 6;
    /// The limiting limit, if its name is not that of the entry of `limiting`.
    pub(super) const LIMIT: u64 = 1 << 7;
    pub(super) const TAG: u64 = 1 << 8;
    pub(super) const LIMITING: u64 = 1 << 9;
    pub(super) const RETRY_AFTER: u64 = 1 << 10;
    pub(super) const SHADOWED: u64 = 1 << 11;
    pub(super) const NODE_SHED: u64 = 1 << 12;
    pub(super) const TRACE: u64 = 1 << 13;
    /// The time of the store, if it is not that of the node.
    pub(super) const COUNTED_AT: u64 = 1 << 14;
}

/// The marks of a definition.
mod definition_mark {
    pub(super) const WINDOW: u64 = 1;
    pub(super) const WHOLE: u64 = 1 << 1;
    pub(super) const GRANTED_BY: u64 = 1 << 2;
    pub(super) const CANDIDATE: u64 = 1 << 3;
    pub(super) const COUNT_DENIED: u64 = 1 << 4;
    pub(super) const DEGRADED: u64 = 1 << 5;
}

/// The part of a [`LimitRecord`] that many records share.
#[derive(Clone, Debug)]
pub(crate) struct LimitDefinition {
    name: Arc<str>,
    window: Option<Box<str>>,
    quota: Quota,
    whole: Option<Quota>,
    granted_by: Option<Box<str>>,
    mode: Mode,
    is_candidate: bool,
    count_denied: bool,
    degraded: bool,
}

/// Encodes records of one segment.
#[derive(Default)]
pub(crate) struct Encoder {
    /// The offsets of the definitions in the segment.
    definitions: HashMap<Box<[u8]>, u64>,
    definition: Vec<u8>,
    offsets: Vec<u64>,
}

impl Encoder {
    /// Appends a record with the definitions that it needs. `start` is the offset of `out` in the
    /// segment. Returns the offset of the record; `None` if it is too large.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, start: u64, record: &Record) -> Option<u64> {
        self.offsets.clear();
        for limit in &record.limits {
            self.definition.clear();
            put_definition(&mut self.definition, limit);
            let offset = match self.definitions.get(&*self.definition) {
                Some(offset) => *offset,
                None => self.define(out, start)?,
            };
            self.offsets.push(offset);
        }
        let offset = start + out.len() as u64;
        let offsets = &self.offsets;
        frame::put(out, Kind::Record, |out| put_record(out, record, offset, offsets)).then_some(offset)
    }

    fn define(&mut self, out: &mut Vec<u8>, start: u64) -> Option<u64> {
        let offset = start + out.len() as u64;
        let definition = &self.definition;
        if !frame::put(out, Kind::Definition, |out| out.extend_from_slice(definition)) {
            return None;
        }
        if self.definitions.len() >= MAX_DEFINITIONS {
            self.definitions.clear();
        }
        self.definitions.insert(self.definition.as_slice().into(), offset);
        Some(offset)
    }
}

fn put_definition(out: &mut Vec<u8>, limit: &LimitRecord) {
    let if_set = |is: bool, mark: u64| if is { mark } else { 0 };
    let marks = if_set(limit.window.is_some(), definition_mark::WINDOW)
        | if_set(limit.whole.is_some(), definition_mark::WHOLE)
        | if_set(limit.granted_by.is_some(), definition_mark::GRANTED_BY)
        | if_set(limit.is_candidate, definition_mark::CANDIDATE)
        | if_set(limit.count_denied, definition_mark::COUNT_DENIED)
        | if_set(limit.degraded, definition_mark::DEGRADED);
    put(out, marks);
    put(out, position(&MODES, &limit.mode));
    put_bytes(out, limit.name.as_bytes());
    put_bytes(out, &limit.quota.encode());
    if let Some(window) = &limit.window {
        put_bytes(out, window.as_bytes());
    }
    if let Some(whole) = &limit.whole {
        put_bytes(out, &whole.encode());
    }
    if let Some(granted_by) = &limit.granted_by {
        put_bytes(out, granted_by.as_bytes());
    }
}

/// Decodes a definition.
pub(crate) fn definition(payload: &[u8]) -> Result<LimitDefinition, ReadError> {
    let mut reader = Reader(payload);
    let marks = reader.number()?;
    let has = |mark: u64| marks & mark != 0;
    let mode = *MODES.get(reader.small::<usize>()?).ok_or(ReadError)?;
    let name = reader.text()?.into();
    let quota = quota(reader.bytes()?)?;
    let window = if has(definition_mark::WINDOW) { Some(reader.text()?.into()) } else { None };
    let whole = if has(definition_mark::WHOLE) { Some(self::quota(reader.bytes()?)?) } else { None };
    let granted_by = if has(definition_mark::GRANTED_BY) { Some(reader.text()?.into()) } else { None };
    Ok(LimitDefinition {
        name,
        window,
        quota,
        whole,
        granted_by,
        mode,
        is_candidate: has(definition_mark::CANDIDATE),
        count_denied: has(definition_mark::COUNT_DENIED),
        degraded: has(definition_mark::DEGRADED),
    })
}

fn quota(bytes: &[u8]) -> Result<Quota, ReadError> {
    Quota::decode(bytes).map_err(|_| ReadError)
}

fn put_record(out: &mut Vec<u8>, record: &Record, offset: u64, definitions: &[u64]) {
    out.extend_from_slice(&record.id.0.to_le_bytes());
    out.extend_from_slice(&record.at.as_micros().to_le_bytes());
    let fate = FATES.iter().position(|fate| *fate == record.fate).unwrap_or(1);
    out.push(u8::try_from(fate).unwrap_or(1));
    let marks = marks(record);
    put(out, marks);
    put(out, record.seq);
    put(out, record.took.as_micros());
    put(out, record.policy_version);
    if marks & mark::COUNTED_AT != 0 {
        out.extend_from_slice(&record.counted_at.as_micros().to_le_bytes());
    }
    put_bytes(out, record.method.as_bytes());
    put_bytes(out, record.path.as_bytes());
    for text in [&record.reason, &record.priority, &record.host, &record.client].into_iter().flatten() {
        put_bytes(out, text.as_bytes());
    }
    if let Some(limit) = record.limit.as_ref().filter(|_| marks & mark::LIMIT != 0) {
        put_bytes(out, limit.as_bytes());
    }
    if let Some(tag) = record.tag {
        out.extend_from_slice(&tag.to_le_bytes());
    }
    if let Some(limiting) = record.limiting {
        put(out, limiting as u64);
    }
    if let Some(wait) = record.retry_after {
        put(out, wait.as_micros());
    }
    put(out, record.limits.len() as u64);
    for (limit, definition) in record.limits.iter().zip(definitions) {
        put(out, offset - definition);
        put_limit(out, limit);
    }
    if marks & mark::SHADOWED != 0 {
        put(out, record.shadowed.len() as u64);
        for block in &record.shadowed {
            put_bytes(out, block.limit.as_bytes());
            put_bytes(out, block.reason.as_bytes());
            out.push(block.is_candidate.into());
        }
    }
    if let Some(shed) = &record.node_shed {
        put_shed(out, shed);
    }
    if let Some(trace) = record.trace {
        out.extend_from_slice(&trace.trace.to_le_bytes());
        out.extend_from_slice(&trace.span.to_le_bytes());
        out.push(trace.sampled.into());
    }
}

fn marks(record: &Record) -> u64 {
    let if_set = |is: bool, mark: u64| if is { mark } else { 0 };
    let limiting = record.limiting.and_then(|at| record.limits.get(at)).map(|it| &*it.name);
    if_set(record.allowed, mark::ALLOWED)
        | if_set(record.degraded, mark::DEGRADED)
        | if_set(record.switched_off, mark::SWITCHED_OFF)
        | if_set(record.reason.is_some(), mark::REASON)
        | if_set(record.priority.is_some(), mark::PRIORITY)
        | if_set(record.host.is_some(), mark::HOST)
        | if_set(record.client.is_some(), mark::CLIENT)
        | if_set(record.limit.is_some() && record.limit.as_deref() != limiting, mark::LIMIT)
        | if_set(record.tag.is_some(), mark::TAG)
        | if_set(record.limiting.is_some(), mark::LIMITING)
        | if_set(record.retry_after.is_some(), mark::RETRY_AFTER)
        | if_set(!record.shadowed.is_empty(), mark::SHADOWED)
        | if_set(record.node_shed.is_some(), mark::NODE_SHED)
        | if_set(record.trace.is_some(), mark::TRACE)
        | if_set(record.counted_at != record.at, mark::COUNTED_AT)
}

fn put_limit(out: &mut Vec<u8>, limit: &LimitRecord) {
    put_bytes(out, limit.key.as_bytes());
    out.extend_from_slice(&limit.tag.to_le_bytes());
    put(out, limit.cost);
    let outcome = &limit.outcome;
    put(out, outcome.limit);
    put(out, outcome.remaining);
    put(out, outcome.reset_after.as_micros());
    match outcome.verdict {
        Verdict::Refused { retry_after } => {
            out.push(0);
            put(out, retry_after.as_micros());
        }
        Verdict::Never => out.push(1),
        Verdict::Admitted { units, wait, leased } => {
            out.push(if leased { 3 } else { 2 });
            put(out, units);
            put(out, wait.as_micros());
        }
    }
}

fn put_shed(out: &mut Vec<u8>, shed: &NodeShed) {
    put(out, shed.level.thousandths().into());
    put(out, shed.share.into());
    for signal in [shed.signals.in_flight, shed.signals.cpu, shed.signals.delay] {
        out.push(signal.is_some().into());
        if let Some(signal) = signal {
            put(out, signal.value);
            put(out, signal.target);
        }
    }
}

/// The part of a record that is read without the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) id: u64,
    pub(crate) at: Timestamp,
}

impl RecordHead {
    /// Decodes the first part of a record.
    pub(crate) fn of(payload: &[u8]) -> Result<Self, ReadError> {
        let mut reader = Reader(payload);
        Ok(Self { id: reader.fixed()?, at: Timestamp::from_micros(reader.fixed()?) })
    }
}

/// Decodes the record at `offset`. `define` returns the definition at an offset.
pub(crate) fn record(
    payload: &[u8],
    offset: u64,
    mut define: impl FnMut(u64) -> Option<LimitDefinition>,
) -> Result<Record, ReadError> {
    let mut reader = Reader(payload);
    let id = DecisionId(reader.fixed()?);
    let at = Timestamp::from_micros(reader.fixed()?);
    let fate = *FATES.get(usize::from(reader.byte()?)).ok_or(ReadError)?;
    let marks = reader.number()?;
    let has = |mark: u64| marks & mark != 0;
    let seq = reader.number()?;
    let took = Span::from_micros(reader.number()?);
    let policy_version = reader.number()?;
    let counted_at = if has(mark::COUNTED_AT) { Timestamp::from_micros(reader.fixed()?) } else { at };
    let (method, path) = (reader.text()?.into(), reader.text()?.into());
    let mut optional = |mark: u64| -> Result<Option<Box<str>>, ReadError> {
        if has(mark) { Ok(Some(reader.text()?.into())) } else { Ok(None) }
    };
    let reason = optional(mark::REASON)?;
    let (priority, host) = (optional(mark::PRIORITY)?, optional(mark::HOST)?);
    let (client, limit) = (optional(mark::CLIENT)?, optional(mark::LIMIT)?);
    let tag = if has(mark::TAG) { Some(reader.fixed()?) } else { None };
    let limiting = if has(mark::LIMITING) { Some(reader.small::<usize>()?) } else { None };
    let retry_after = if has(mark::RETRY_AFTER) { Some(Span::from_micros(reader.number()?)) } else { None };
    let mut limits = Vec::new();
    for _ in 0..reader.number()? {
        let distance = reader.number()?;
        let definition = offset.checked_sub(distance).and_then(&mut define).ok_or(ReadError)?;
        limits.push(read_limit(&mut reader, definition)?);
    }
    let mut shadowed = Vec::new();
    if has(mark::SHADOWED) {
        for _ in 0..reader.number()? {
            let (limit, reason) = (reader.text()?.into(), reader.text()?.into());
            shadowed.push(ShadowBlock { limit, reason, is_candidate: reader.byte()? != 0 });
        }
    }
    let node_shed = if has(mark::NODE_SHED) { Some(Box::new(read_shed(&mut reader)?)) } else { None };
    let trace = if has(mark::TRACE) {
        let (low, high) = (reader.fixed()?, reader.fixed()?);
        let trace = u128::from(high) << 64 | u128::from(low);
        Some(TraceParent { trace, span: reader.fixed()?, sampled: reader.byte()? != 0 })
    } else {
        None
    };
    let of_limiting = || limiting.and_then(|at| limits.get(at)).map(|it: &LimitRecord| Arc::clone(&it.name));
    Ok(Record {
        seq,
        id,
        at,
        counted_at,
        took,
        allowed: has(mark::ALLOWED),
        fate,
        reason,
        priority,
        policy_version,
        degraded: has(mark::DEGRADED),
        method,
        path,
        host,
        client,
        limit: limit.map(Into::into).or_else(of_limiting),
        tag,
        limiting,
        retry_after,
        limits,
        shadowed,
        switched_off: has(mark::SWITCHED_OFF),
        node_shed,
        trace,
    })
}

fn read_limit(reader: &mut Reader<'_>, definition: LimitDefinition) -> Result<LimitRecord, ReadError> {
    let key = reader.text()?.into();
    let tag = reader.fixed()?;
    let cost = reader.number()?;
    let (limit, remaining) = (reader.number()?, reader.number()?);
    let reset_after = Span::from_micros(reader.number()?);
    let verdict = match reader.byte()? {
        0 => Verdict::Refused { retry_after: Span::from_micros(reader.number()?) },
        1 => Verdict::Never,
        leased @ (2 | 3) => Verdict::Admitted {
            units: reader.number()?,
            wait: Span::from_micros(reader.number()?),
            leased: leased == 3,
        },
        _ => return Err(ReadError),
    };
    let LimitDefinition { name, window, quota, whole, granted_by, mode, .. } = definition;
    Ok(LimitRecord {
        name,
        window,
        key,
        tag,
        key_hash: 0,
        quota,
        whole,
        granted_by,
        mode,
        is_candidate: definition.is_candidate,
        count_denied: definition.count_denied,
        degraded: definition.degraded,
        cost,
        outcome: Outcome { verdict, limit, remaining, reset_after },
    })
}

fn read_shed(reader: &mut Reader<'_>) -> Result<NodeShed, ReadError> {
    let level = Level::from_thousandths(reader.small()?);
    let share = reader.small()?;
    let mut signal = || -> Result<Option<SignalReading>, ReadError> {
        if reader.byte()? == 0 {
            return Ok(None);
        }
        Ok(Some(SignalReading { value: reader.number()?, target: reader.number()? }))
    };
    let mut signals = Signals::default();
    signals.in_flight = signal()?;
    signals.cpu = signal()?;
    signals.delay = signal()?;
    Ok(NodeShed::new(level, share, signals))
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|it| it == one).unwrap_or(0) as u64
}
