//! A decision as bytes of bounded length: the form in which the ring stores it.
//!
//! A refusal is recorded on the path of its request, so a record is not built there: numbers and short texts are
//! copied into a buffer on the stack, and from there into the ring. Limits, rules and classes are stored as their
//! places in the policy. A [`Record`] is built when one is read, from the bytes and the policy ([`unpack`]).
//!
//! Text from callers is truncated and keys and addresses are redacted before they are packed, as in a [`Record`].
//!
//! Some decisions cannot be packed, and are described at once: those without the store, those that this node sheds,
//! those by a rule that is in no policy, and those with more limits and longer texts than [`MAX_PACKED_BYTES`].
//!
//! Invariant: an unpacked record equals the record that `describe` builds from the same decision. Tested by
//! `tests::a_packed_decision_reads_as_its_description`.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use tollgate::policy::BlockReason;
use tollgate::{
    DecisionId, Event, Fate, Limit, LimitOutcome, NotHeld, Outcome, Policy, Rule, Span, Subject, Timestamp,
    Verdict,
};

use crate::address::ShownAddress;
use crate::describe::{
    self, Describer, MAX_HOST_BYTES, MAX_METHOD_BYTES, MAX_PATH_BYTES, fit, method_of, trace_of,
};
use crate::key_cache::ShownKey;
use crate::record::{LimitRecord, Record, RecordFate, ShadowBlock};
use crate::text::Text;
use crate::traceparent::TraceParent;

/// The maximum length of a packed record. Four limits with ordinary keys and the longest path fit, or six with an
/// ordinary path.
pub(crate) const MAX_PACKED_BYTES: usize = 896;

/// A packed record, or the beginning of one.
pub(crate) struct PackedRecord {
    length: usize,
    bytes: [u8; MAX_PACKED_BYTES],
    /// Whether the record is longer than the maximum.
    is_cut: bool,
    /// Whether the caller samples the trace of the request.
    pub(crate) is_trace_sampled: bool,
}

/// Marks which optional fields are present.
mod flag {
    pub(super) const RETRY_AFTER: u8 = 1;
    pub(super) const TAG: u8 = 2;
    pub(super) const TRACE: u8 = 4;
    pub(super) const TRACE_SAMPLED: u8 = 8;
    pub(super) const HOST: u8 = 16;
    pub(super) const LIMITING: u8 = 32;
    pub(super) const PRIORITY: u8 = 64;
    pub(super) const CLIENT: u8 = 128;
}

thread_local! {
    /// The buffer of this thread: to clear a new one for each refusal would take longer than to pack a limit.
    static BUFFER: RefCell<PackedRecord> = const { RefCell::new(PackedRecord::new()) };
}

impl PackedRecord {
    /// Creates an empty record.
    const fn new() -> Self {
        Self { length: 0, bytes: [0; MAX_PACKED_BYTES], is_cut: false, is_trace_sampled: false }
    }

    /// Passes an empty record to `then`, in a buffer of this thread. `None` if `then` returns it, or if the buffer is in
    /// use.
    #[inline]
    pub(crate) fn with_buffer<T>(then: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        BUFFER.with(|buffer| {
            let mut buffer = buffer.try_borrow_mut().ok()?;
            (buffer.length, buffer.is_cut, buffer.is_trace_sampled) = (0, false, false);
            then(&mut buffer)
        })
    }

    /// Returns the bytes; `None` if the record does not fit.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        if self.is_cut { None } else { self.bytes.get(..self.length) }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.is_cut = true,
        }
    }

    /// Adds numbers, with one test for the room of all of them.
    #[inline]
    fn put_u64s<const N: usize>(&mut self, numbers: [u64; N]) {
        match self.bytes.get_mut(self.length..self.length + 8 * N) {
            Some(room) => {
                for (room, number) in room.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *room = number.to_le_bytes();
                }
                self.length += 8 * N;
            }
            None => self.is_cut = true,
        }
    }

    #[inline]
    fn put_u32(&mut self, number: usize) {
        match u32::try_from(number) {
            Ok(number) => self.put(&number.to_le_bytes()),
            Err(_) => self.is_cut = true,
        }
    }

    #[inline]
    fn put_u8(&mut self, number: usize) {
        match u8::try_from(number) {
            Ok(number) => self.put(&[number]),
            Err(_) => self.is_cut = true,
        }
    }

    /// Adds a text, truncated so that it fits `most` bytes. At most 64 KiB.
    #[inline]
    fn put_text(&mut self, text: &str, most: usize) {
        let (text, is_cut) = fit(text, most);
        let ellipsis = if is_cut { "…" } else { "" };
        self.put_length(text.len() + ellipsis.len());
        self.put(text.as_bytes());
        if is_cut {
            self.put(ellipsis.as_bytes());
        }
    }

    /// Adds the length of a text.
    #[inline]
    fn put_length(&mut self, length: usize) {
        // The maximum of every text is far below 64 KiB.
        self.put(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    }

    fn put_address(&mut self, address: ShownAddress) {
        let (kind, bits) = match address {
            ShownAddress::Plain(IpAddr::V4(address)) => (0, u128::from(address.to_bits())),
            ShownAddress::Plain(IpAddr::V6(address)) => (1, address.to_bits()),
            ShownAddress::Hash(tag) => (2, u128::from(tag)),
            ShownAddress::Prefix(IpAddr::V4(address)) => (3, u128::from(address.to_bits())),
            ShownAddress::Prefix(IpAddr::V6(address)) => (4, address.to_bits()),
        };
        self.put(&[kind]);
        self.put(&bits.to_le_bytes());
    }

    fn put_block(&mut self, limit: &Limit, reason: BlockReason) -> Option<()> {
        let reason = BLOCK_REASONS.iter().position(|known| *known == reason)?;
        self.put_u32(limit.place());
        self.put_u8(reason);
        Some(())
    }
}

/// Returns a verdict as numbers: its kind, the units and the wait.
#[inline]
const fn verdict_numbers(verdict: Verdict) -> (u64, u64, Span) {
    match verdict {
        Verdict::Admitted { units, wait, leased: false } => (0, units, wait),
        Verdict::Admitted { units, wait, leased: true } => (1, units, wait),
        Verdict::Refused { retry_after } => (2, 0, retry_after),
        Verdict::Never => (3, 0, Span::ZERO),
    }
}

const BLOCK_REASONS: [BlockReason; 4] =
    [BlockReason::Override, BlockReason::Plan, BlockReason::MissingKey, BlockReason::Ambiguous];

const FATES: [RecordFate; 6] = [
    RecordFate::Admitted,
    RecordFate::Refused,
    RecordFate::AllowListed,
    RecordFate::DenyListed,
    RecordFate::AmbiguousPath,
    RecordFate::Blocked,
];

/// The reason to refuse a request that was admitted, if there is one.
const NOT_HELD: [Option<NotHeld>; 4] =
    [None, Some(NotHeld::NoPlace), Some(NotHeld::TooLong), Some(NotHeld::Displaced)];

/// Packs a decision into an empty record, which is too large to be returned. `limiting` is its limiting limit; `path` is
/// redacted; `show_key` passes the redacted key of a limit to the function, with the hash of the allowance. `None` if the
/// decision cannot be packed.
#[inline]
pub(crate) fn pack(
    packed: &mut PackedRecord,
    describer: &Describer<'_>,
    event: &Event<'_, '_>,
    limiting: Option<LimitOutcome<'_>>,
    not_held: Option<NotHeld>,
    path: &str,
    mut show_key: impl FnMut(usize, &LimitOutcome<'_>, &mut dyn FnMut(&ShownKey, u64)),
) -> Option<()> {
    let (decision, subject, policy) = (event.decision, event.subject, describer.policy);
    if decision.is_degraded() {
        return None;
    }
    let fate = describe::fate(decision.fate());
    let fate = FATES.iter().position(|known| *known == fate)?;
    let not_held = NOT_HELD.iter().position(|known| *known == not_held)?;
    let retry_after =
        limiting.filter(|_| matches!(decision.fate(), Fate::Refused)).and_then(|it| it.advised_wait());
    let limiting = limiting.and_then(|it| describe::place_of(&it, decision));
    let trace = subject.and_then(trace_of);
    let host = subject.and_then(|it| it.request()?.host());
    let client = subject.and_then(Subject::client);
    let tag_of_client = match decision.fate() {
        Fate::Blocked(_) => describer.tag_of_client(subject),
        _ => None,
    };
    let marked = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = marked(retry_after.is_some(), flag::RETRY_AFTER)
        | marked(tag_of_client.is_some(), flag::TAG)
        | marked(trace.is_some(), flag::TRACE)
        | marked(trace.is_some_and(|it| it.sampled), flag::TRACE_SAMPLED)
        | marked(host.is_some(), flag::HOST)
        | marked(limiting.is_some(), flag::LIMITING)
        | marked(decision.priority().is_some(), flag::PRIORITY)
        | marked(client.is_some(), flag::CLIENT);

    packed.is_trace_sampled = flags & flag::TRACE_SAMPLED != 0;
    // Both are indexes of short lists.
    let [fate, not_held] = [fate, not_held].map(|index| u8::try_from(index).unwrap_or(u8::MAX));
    packed.put(&[fate, not_held, flags]);
    packed.put_u64s([
        event.id.0,
        event.at.as_micros(),
        decision.at().unwrap_or(event.at).as_micros(),
        Span::from(event.took()).as_micros(),
    ]);
    if let Some(retry_after) = retry_after {
        packed.put_u64s([Span::from(retry_after).as_micros()]);
    }
    if let Some(tag) = tag_of_client {
        packed.put_u64s([tag]);
    }
    if let Some(TraceParent { trace, span, .. }) = trace {
        packed.put(&trace.to_le_bytes());
        packed.put_u64s([span]);
    }
    if let Some(limiting) = limiting {
        packed.put_u8(limiting);
    }
    if let Some(class) = decision.priority() {
        packed.put(&[class.rank()]);
    }
    match decision.fate() {
        Fate::AllowListed(entry) | Fate::DenyListed(entry) => packed.put(&entry.line().to_le_bytes()),
        Fate::Blocked(block) => packed.put_block(block.limit, block.reason)?,
        _ => {}
    }
    if let Some(client) = client {
        packed.put_address(ShownAddress::of(client, policy, describer.secret));
    }
    packed.put_text(subject.map_or("", method_of), MAX_METHOD_BYTES);
    packed.put_text(path, MAX_PATH_BYTES);
    if let Some(host) = host {
        let host = describer.redactor.map_or(host, |redactor| redactor.host(host));
        packed.put_text(host, MAX_HOST_BYTES);
    }
    packed.put_u8(decision.shadowed().len());
    for block in decision.shadowed() {
        packed.put_block(block.limit, block.reason)?;
    }
    packed.put_u8(decision.limits().len());
    for (index, it) in decision.limits().enumerate() {
        let places = RulePlace::of(policy, &it)?.places(it.limit().place())?;
        let (verdict, units, wait) = verdict_numbers(it.outcome().verdict);
        let Outcome { limit, remaining, reset_after, .. } = *it.outcome();
        let (wait, reset_after) = (wait.as_micros(), reset_after.as_micros());
        show_key(index, &it, &mut |key, key_hash| {
            let text = key.text.as_bytes();
            let kinds = verdict | (text.len() as u64) << 8;
            let [places, rule] = places;
            packed.put_u64s([
                places,
                rule,
                kinds,
                it.cost(),
                units,
                wait,
                limit,
                remaining,
                reset_after,
                key.tag,
                key_hash,
            ]);
            packed.put(text);
        });
    }
    Some(())
}

/// The place of a rule in its limit.
#[derive(Clone, Copy)]
enum RulePlace {
    /// The index of the window among the limit's own rules.
    Own(usize),
    /// The address of a rule of a class, a plan or an override. It is compared and never dereferenced; the policy does
    /// not move its rules while records refer to it.
    Address(u64),
}

impl RulePlace {
    /// Returns the place of the rule of a check; `None` if the rule is in no policy.
    #[inline]
    fn of(policy: &Policy, it: &LimitOutcome<'_>) -> Option<Self> {
        let (limit, rule) = (it.limit(), it.policy_rule());
        if ptr::eq(limit, policy.ad_hoc()) {
            return None;
        }
        let window = limit.rules().iter().position(|known| ptr::eq(known, rule));
        Some(window.map_or_else(|| Self::Address(address_of(rule)), Self::Own))
    }

    /// Returns the place as numbers: the index of the limit with the kind of the place, and the index or the address.
    #[inline]
    fn places(self, limit: usize) -> Option<[u64; 2]> {
        let limit = u64::from(u32::try_from(limit).ok()?);
        Some(match self {
            Self::Own(window) => [limit, window as u64],
            Self::Address(address) => [limit | 1 << 32, address],
        })
    }

    /// Returns the index of the limit and the place from their numbers.
    fn from_places([limit, rule]: [u64; 2]) -> Option<(usize, Self)> {
        let place =
            if limit >> 32 == 0 { Self::Own(usize::try_from(rule).ok()?) } else { Self::Address(rule) };
        Some((usize::try_from(limit & u64::from(u32::MAX)).ok()?, place))
    }

    fn find(self, limit: &Limit) -> Option<&Rule> {
        match self {
            Self::Own(window) => limit.rules().get(window),
            Self::Address(address) => limit.every_rule().find(|rule| address_of(rule) == address),
        }
    }
}

fn address_of(rule: &Rule) -> u64 {
    ptr::from_ref(rule).addr() as u64
}

/// Builds the record of a packed decision, without a sequence number. `describer` has the policy that decided.
/// `None` if the bytes are no packed decision.
pub(crate) fn unpack(bytes: &[u8], describer: &Describer<'_>) -> Option<Record> {
    let (mut bytes, policy) = (Unpacker(bytes), describer.policy);
    let fate = *FATES.get(bytes.u8()?)?;
    let not_held = *NOT_HELD.get(bytes.u8()?)?;
    let [flags] = bytes.array()?;
    let has = |flag: u8| flags & flag != 0;
    let [id, at, counted_at, took] = bytes.u64s()?;
    let retry_after = if has(flag::RETRY_AFTER) { Some(bytes.span()?) } else { None };
    let tag_of_client = if has(flag::TAG) { Some(bytes.u64()?) } else { None };
    let trace = if has(flag::TRACE) {
        let trace = u128::from_le_bytes(bytes.array()?);
        Some(TraceParent { trace, span: bytes.u64()?, sampled: has(flag::TRACE_SAMPLED) })
    } else {
        None
    };
    let limiting = if has(flag::LIMITING) { Some(bytes.u8()?) } else { None };
    let class = if has(flag::PRIORITY) { policy.priorities().get(bytes.u8()?) } else { None };
    let (mut line, mut block) = (0, None);
    match fate {
        RecordFate::AllowListed | RecordFate::DenyListed => line = u32::from_le_bytes(bytes.array()?),
        RecordFate::Blocked => block = Some(bytes.block(policy)?),
        _ => {}
    }
    let client = if has(flag::CLIENT) { Some(bytes.address()?) } else { None };
    let (method, path) = (bytes.text()?, bytes.text()?);
    let host = if has(flag::HOST) { Some(bytes.text()?) } else { None };
    let shadowed = (0..bytes.u8()?).map(|_| {
        let (limit, reason) = bytes.block(policy)?;
        Some(describe::shadowed(limit, reason))
    });
    let shadowed: Vec<ShadowBlock> = shadowed.collect::<Option<_>>()?;
    let allowed = matches!(fate, RecordFate::Admitted | RecordFate::AllowListed);
    let count = bytes.u8()?;
    let (mut limits, mut refusing) = (Vec::<LimitRecord>::with_capacity(count), None);
    for index in 0..count {
        let [places, rule, kinds, cost, units, wait] = bytes.u64s()?;
        let [limit_units, remaining, reset_after, tag, key_hash] = bytes.u64s()?;
        let (limit, place) = RulePlace::from_places([places, rule])?;
        let limit = policy.limits().get(limit)?;
        let rule = place.find(limit)?;
        let wait = Span::from_micros(wait);
        let verdict = match kinds & 0xff {
            kind @ (0 | 1) => Verdict::Admitted { units, wait, leased: kind == 1 },
            2 => Verdict::Refused { retry_after: wait },
            _ => Verdict::Never,
        };
        let reset_after = Span::from_micros(reset_after);
        let outcome = Outcome { verdict, limit: limit_units, remaining, reset_after };
        let text = bytes.text_of(usize::try_from(kinds >> 8).ok()?)?;
        let key = ShownKey { text: Text::new(text), tag };
        limits.push(describer.limit_record(limit, (rule, None), &key, key_hash, allowed, cost, outcome));
        if limiting == Some(index) {
            refusing = Some((limit, rule, outcome.verdict));
        }
    }
    let reason = match (fate, not_held) {
        (_, Some(not_held)) => Some(describe::not_held(not_held).into()),
        (RecordFate::Refused, None) => refusing.and_then(|(limit, rule, verdict)| {
            describe::reason_of_limit(class, limit, (rule, rule), verdict)
        }),
        (RecordFate::AllowListed, None) => Some(describe::allow_listed(line).into()),
        (RecordFate::DenyListed, None) => Some(describe::deny_listed(line).into()),
        (RecordFate::AmbiguousPath, None) => Some(describe::AMBIGUOUS_PATH.into()),
        (RecordFate::Blocked, None) => block.map(|(limit, reason)| describe::blocked(limit, reason).into()),
        _ => None,
    };
    Some(Record {
        seq: 0,
        id: DecisionId(id),
        at: Timestamp::from_micros(at),
        counted_at: Timestamp::from_micros(counted_at),
        took: Span::from_micros(took),
        allowed,
        fate,
        reason: reason.map(Into::into),
        priority: class.map(|class| class.name().into()),
        policy_version: describer.version,
        degraded: false,
        method: method.into(),
        path: path.into(),
        host: host.map(Into::into),
        client: client.map(Into::into),
        limit: match block {
            Some((limit, _)) => Some(limit.shared_name()),
            None => refusing.map(|(limit, ..)| limit.shared_name()),
        },
        tag: match fate {
            RecordFate::Blocked => tag_of_client,
            _ => limiting.and_then(|index| Some(limits.get(index)?.tag)),
        },
        limiting,
        retry_after,
        limits,
        shadowed,
        switched_off: describe::is_off(policy),
        node_shed: None,
        trace,
    })
}

/// Reads the fields of a packed record in order.
struct Unpacker<'b>(&'b [u8]);

impl<'b> Unpacker<'b> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<usize> {
        self.array().map(|[byte]| usize::from(byte))
    }

    fn u32(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn span(&mut self) -> Option<Span> {
        self.u64().map(Span::from_micros)
    }

    fn u64s<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.u64()?;
        }
        Some(numbers)
    }

    fn text(&mut self) -> Option<&'b str> {
        let length = u16::from_le_bytes(self.array()?);
        self.text_of(length.into())
    }

    fn text_of(&mut self, length: usize) -> Option<&'b str> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn block<'p>(&mut self, policy: &'p Policy) -> Option<(&'p Limit, BlockReason)> {
        let limit = policy.limits().get(self.u32()?)?;
        Some((limit, *BLOCK_REASONS.get(self.u8()?)?))
    }

    fn address(&mut self) -> Option<ShownAddress> {
        let [kind] = self.array()?;
        let bits = u128::from_le_bytes(self.array()?);
        let v4 = || u32::try_from(bits).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
        let v6 = IpAddr::V6(Ipv6Addr::from_bits(bits));
        Some(match kind {
            0 => ShownAddress::Plain(v4()?),
            1 => ShownAddress::Plain(v6),
            2 => ShownAddress::Hash(u64::try_from(bits).ok()?),
            3 => ShownAddress::Prefix(v4()?),
            _ => ShownAddress::Prefix(v6),
        })
    }
}
