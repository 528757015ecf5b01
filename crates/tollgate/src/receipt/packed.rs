//! A receipt in few bytes, for a server that keeps many.
//!
//! A server keeps the receipt of each decision for a while, and nearly none is ever read. So the charges are copied into
//! bytes, without a reference to their limits: for most decisions, this takes less than half of the memory of a
//! [`Receipt`], and neither an allocation nor a write to memory that other threads use.
//!
//! A decision without the store is rare, and shares its charges with the outage: its receipt is not packed.
//!
//! Invariant: an unpacked receipt equals the receipt of the same decision. Tested by
//! `tests::a_packed_receipt_reads_as_the_receipt`.

use std::sync::OnceLock;

use smallvec::SmallVec;
use tollgate_core::varint::{ReadError, Reader};
use tollgate_core::{Owner, RuleId, Span, Timestamp};
use tollgate_policy::Key;

use super::{Charge, ChargeRef, Receipt, charged_limits};
use crate::decision::Decision;
use crate::id::DecisionId;

/// The bytes that need no allocation: one charge under a limit and a key with ordinary names.
const INLINE_BYTES: usize = 96;

/// The part of a charge that has a fixed length: rule, units, end, kind, and the lengths of limit and key.
const CHARGE_BYTES: usize = 29;

/// The bits of the first byte of a receipt, and of the kind of a charge.
mod flag {
    /// The receipt has an owner.
    pub(super) const OWNER: u8 = 1;
    /// A slot was taken.
    pub(super) const SLOTS: u8 = 2;
    /// The charge is a slot.
    pub(super) const SLOT: u8 = 1;
    /// The charge waits in a queue.
    pub(super) const WAIT: u8 = 2;
}

/// A [`Receipt`] in few bytes, without the id of its decision.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 2/minute}]")?;
/// let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
/// let id = limiter.id_of(&decision);
/// let packed = decision.packed_receipt().unwrap();
/// assert_eq!(packed.unpack(id), decision.receipt().map(|it| it.with_id(id)));
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PackedReceipt(Form);

#[derive(Clone, Debug)]
enum Form {
    Bytes(SmallVec<[u8; INLINE_BYTES]>),
    Whole(Box<Receipt>),
}

impl PackedReceipt {
    /// Returns the receipt of a decision, or `None` if nothing was counted or admitted.
    #[inline]
    pub(crate) fn of(decision: &Decision<'_>) -> Option<Self> {
        let packed = if decision.degraded.is_some() {
            None
        } else {
            let at = Receipt::admitted_at(decision)?;
            pack(at, decision.owner(), charged_limits(decision).map(|it| ChargeRef::of(&it, at)))
        };
        match packed {
            Some(bytes) => Some(Self(Form::Bytes(bytes))),
            None => Receipt::of(decision).map(|it| Self(Form::Whole(Box::new(it)))),
        }
    }

    /// Returns whether slots were taken, as [`Receipt::slots`] counts them.
    pub fn has_slots(&self) -> bool {
        match &self.0 {
            Form::Bytes(bytes) => bytes.first().is_some_and(|flags| flags & flag::SLOTS != 0),
            Form::Whole(receipt) => receipt.slots() > 0,
        }
    }

    /// Returns the receipt. `id` is that of its decision. `None` would be a defect of this type: what it packs can be read.
    pub fn unpack(&self, id: DecisionId) -> Option<Receipt> {
        match &self.0 {
            Form::Bytes(bytes) => unpack(bytes, id).ok(),
            Form::Whole(receipt) => Some(Receipt::clone(receipt).with_id(id)),
        }
    }
}

impl From<&Receipt> for PackedReceipt {
    fn from(receipt: &Receipt) -> Self {
        let Receipt { at, owner, charges, .. } = receipt;
        let packed =
            if receipt.is_degraded() { None } else { pack(*at, *owner, charges.iter().map(ChargeRef::from)) };
        Self(packed.map_or_else(|| Form::Whole(Box::new(receipt.clone())), Form::Bytes))
    }
}

/// Returns the bytes of a receipt, or `None` if a limit or a key has too many.
#[inline(always)]
fn pack<'c>(
    at: Timestamp,
    owner: Option<Owner>,
    charges: impl Iterator<Item = ChargeRef<'c>>,
) -> Option<SmallVec<[u8; INLINE_BYTES]>> {
    let mut bytes = SmallVec::new();
    let mut flags = if owner.is_some() { flag::OWNER } else { 0 };
    bytes.push(flags);
    bytes.extend_from_slice(&at.as_micros().to_le_bytes());
    if let Some(Owner(owner)) = owner {
        bytes.extend_from_slice(&owner.to_le_bytes());
    }
    for ChargeRef { limit, rule, key, units, until, wait, is_slot } in charges {
        let (limit, key) = (limit.as_bytes(), key.as_bytes());
        let kind = if is_slot { flag::SLOT } else { 0 } | if wait.is_zero() { 0 } else { flag::WAIT };
        let mut fixed = [0; CHARGE_BYTES];
        fixed[..8].copy_from_slice(&rule.0.to_le_bytes());
        fixed[8..16].copy_from_slice(&units.to_le_bytes());
        fixed[16..24].copy_from_slice(&until.as_micros().to_le_bytes());
        fixed[24] = kind;
        fixed[25..27].copy_from_slice(&u16::try_from(limit.len()).ok()?.to_le_bytes());
        fixed[27..].copy_from_slice(&u16::try_from(key.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(&fixed);
        if !wait.is_zero() {
            bytes.extend_from_slice(&wait.as_micros().to_le_bytes());
        }
        bytes.extend_from_slice(limit);
        bytes.extend_from_slice(key);
        if is_slot && units > 0 && owner.is_some() {
            flags |= flag::SLOTS;
        }
    }
    bytes[0] = flags;
    Some(bytes)
}

fn unpack(bytes: &[u8], id: DecisionId) -> Result<Receipt, ReadError> {
    let mut reader = Reader(bytes);
    let flags = reader.byte()?;
    let at = Timestamp::from_micros(reader.fixed()?);
    let owner = if flags & flag::OWNER == 0 { None } else { Some(Owner(reader.wide()?)) };
    let mut charges = SmallVec::new();
    while !reader.0.is_empty() {
        charges.push(unpack_charge(&mut reader)?);
    }
    Ok(Receipt { id: Some(id), own_id: OnceLock::new(), at, owner, charges })
}

fn unpack_charge(reader: &mut Reader<'_>) -> Result<Charge, ReadError> {
    let rule = RuleId(reader.fixed()?);
    let units = reader.fixed()?;
    let until = Timestamp::from_micros(reader.fixed()?);
    let kind = reader.byte()?;
    let [limit, key] = [reader.array()?, reader.array()?].map(|it| usize::from(u16::from_le_bytes(it)));
    let wait = if kind & flag::WAIT == 0 { Span::ZERO } else { Span::from_micros(reader.fixed()?) };
    let limit = str::from_utf8(reader.take(limit)?).map_err(|_| ReadError)?;
    let key = Key::from_bytes(reader.take(key)?).ok_or(ReadError)?;
    let is_slot = kind & flag::SLOT != 0;
    Ok(Charge { limit: limit.into(), rule, key, units, until, wait, is_slot, in_outage: None })
}

#[cfg(test)]
mod tests {
    use tollgate_policy::{Call, Input};

    use super::*;
    use crate::limiter::Limiter;

    /// Limits of every kind: with slots, with a queue and with several windows, in force and not.
    const POLICY: &str = "
limits:
  - {name: few, by: ip, windows: [3/second, 100/hour]}
  - {name: soft, by: user, bucket: 2/hour, mode: shadow}
  - {name: slots, by: user, slots: 2}
  - {name: all, by: global, bucket: 1000/day}
  - {name: line, endpoint: /line, by: user, algorithm: leaky-queue, rate: 2/second, queue: {length: 3, wait: 5s}}
  - {name: tally, endpoint: /tally, by: [user, api_key], bucket: 5/minute, cost: {reserve: 2, settle: \"response:x-cost\"}}
";

    fn receipts_of(input: &impl Input, limiter: &Limiter) -> usize {
        let decision = limiter.check(input);
        let id = limiter.id_of(&decision);
        let (receipt, packed) = (decision.receipt(), decision.packed_receipt());
        let Some(receipt) = receipt else {
            assert!(packed.is_none());
            return 0;
        };
        let receipt = receipt.with_id(id);
        let packed = packed.unwrap();
        assert_eq!(packed.unpack(id).as_ref(), Some(&receipt));
        assert_eq!(PackedReceipt::from(&receipt).unpack(id).as_ref(), Some(&receipt));
        assert_eq!(packed.has_slots(), receipt.slots() > 0);
        1
    }

    #[test]
    fn a_packed_receipt_reads_as_the_receipt() {
        let limiter = Limiter::from_policy(POLICY).unwrap();
        let (mut admitted, long) = (0, "k".repeat(300));
        for turn in 0..60_u8 {
            for path in ["/", "/line", "/tally"] {
                let call = Call::new("GET", path).ip([203, 0, 113, turn % 20]).cost(u64::from(turn % 3));
                admitted += receipts_of(&call, &limiter);
                // The length of a part of a key has a second byte from 128 on.
                let user = format!("{turn}").repeat(60);
                let call = call.user(&user).api_key(&long);
                admitted += receipts_of(&call, &limiter);
            }
        }
        assert!(admitted > 100, "{admitted}");
    }

    #[test]
    fn a_receipt_with_a_name_that_is_too_long_is_kept_whole() {
        let limiter = Limiter::from_policy(POLICY).unwrap();
        let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]).user("ann"));
        let (id, mut receipt) = (limiter.id_of(&decision), decision.receipt().unwrap());
        receipt.charges[0].limit = "l".repeat(70_000).into();
        let packed = PackedReceipt::from(&receipt);
        assert!(matches!(packed.0, Form::Whole(_)) && packed.has_slots());
        assert_eq!(packed.unpack(id), Some(receipt.with_id(id)));
    }

    #[test]
    fn an_ordinary_receipt_needs_no_allocation() {
        let limiter =
            Limiter::from_policy("limits: [{endpoint: /api/v1/posts, by: user, bucket: 5/minute}]").unwrap();
        let decision = limiter.check(&Call::new("GET", "/api/v1/posts").user("9f4c2b1e-77a0-4d1c"));
        let Some(PackedReceipt(Form::Bytes(bytes))) = decision.packed_receipt() else { panic!("not packed") };
        assert!(!bytes.spilled(), "{} bytes", bytes.len());
    }

    #[test]
    fn bytes_that_are_cut_are_no_receipt() {
        let limiter = Limiter::from_policy(POLICY).unwrap();
        let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]).user("ann"));
        let Some(PackedReceipt(Form::Bytes(bytes))) = decision.packed_receipt() else { panic!("not packed") };
        let read = |length: usize| unpack(&bytes[..length], DecisionId(1));
        let whole = read(bytes.len()).unwrap();
        assert!((0..bytes.len()).all(|length| read(length).as_ref() != Ok(&whole)));
    }
}
