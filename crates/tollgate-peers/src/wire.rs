//! The bytes of a call between two nodes, and of its reply.
//!
//! Numbers are LEB128, texts and keys have a length before them. A call holds everything that the
//! owner needs: rules travel with their quotas, because two nodes may have different policies during
//! a deploy. Times are by the clock of the owner (`clock_offset`).
//!
//! Invariant: any bytes decode to a value that the in-memory store accepts, or to an error. Decoding
//! never panics, and allocates no more than the length of the input. Tested by `tests::garbage`.

mod holdings;
mod quota;
mod values;

use std::sync::Arc;

use smallvec::SmallVec;
pub(crate) use tollgate_core::varint::ReadError as WireError;
use tollgate_core::varint::{Reader, put, put_bytes};
use tollgate_core::{Adjustment, Outcome, Rule, State, Timestamp};
use tollgate_store::parts::OwnedCheck;
use tollgate_store::{AdjustmentId, Answer, Check, Outcomes};

use self::values::Wire;
use crate::ownership::{Holding, Process};

/// The version of the calls. It increases when their meaning changes.
pub const VERSION: u32 = 2;

/// The maximum number of checks in one call.
pub(crate) const MAX_CHECKS: usize = 512;

/// The maximum number of bytes of a call. A command of the Redis protocol may have 128 KiB, and one
/// argument 64 KiB.
pub(crate) const MAX_CALL_BYTES: usize = 60 * 1024;

/// A call to the owner of some keys.
#[derive(Debug)]
pub(crate) enum Call {
    /// Asks whether the node answers, and for its time.
    Ping,
    /// Decides a batch.
    Decide(Vec<OwnedCheck>),
    /// Adjusts one key, once if there is an id.
    Adjust(Box<KeyChange>),
    /// Tells the holdings that the caller knows, and asks for partitions.
    Claim(Box<Claim>),
    /// Asks for the states of a key that the caller holds now.
    Copy(Box<CopyRequest>),
}

/// The holdings that a node knows, by partition, and the partitions that it wants.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// The caller, if it is a member.
    pub(crate) by: Option<Arc<Process>>,
    pub(crate) wanted: Vec<u8>,
    pub(crate) holdings: Vec<(u8, Arc<Holding>)>,
}

/// A request for the states of a key.
#[derive(Debug)]
pub(crate) struct CopyRequest {
    /// The holding of the caller.
    pub(crate) holding: Arc<Holding>,
    pub(crate) key: Box<[u8]>,
    /// The rules under which the key may have a state.
    pub(crate) rules: Vec<Rule>,
}

/// An adjustment of one key.
#[derive(Debug)]
pub(crate) struct KeyChange {
    pub(crate) rule: Rule,
    pub(crate) key: Box<[u8]>,
    pub(crate) adjustment: Adjustment,
    pub(crate) id: Option<AdjustmentId>,
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The time of the owner.
    Pong(Timestamp),
    /// The answer to a batch, and the indices of the checks that renewed a slot.
    Decided(Answer, SmallVec<[usize; 1]>),
    /// The state of a key after an adjustment, and the time.
    Adjusted(Outcome, Timestamp),
    /// The node does not hold the partition of a key of the call. Nothing was done. With the holding that
    /// it knows.
    NotHolder(u8, Arc<Holding>),
    /// The holdings that the node knows.
    Holdings(Vec<(u8, Arc<Holding>)>),
    /// The states of a key under each rule, with the number of the process and the time.
    Copied { incarnation: u64, at: Timestamp, states: Vec<Option<State>> },
    /// The call arrived too late. Nothing was done.
    Late,
}

const PING: u8 = 0;
const DECIDE: u8 = 1;
const ADJUST: u8 = 2;
const NOT_HOLDER: u8 = 4;
const LATE: u8 = 5;
const CLAIM: u8 = 6;
const COPY: u8 = 7;

/// Starts a call that is never too late.
fn start(kind: u8, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + capacity);
    begin(kind, &mut out);
    out
}

fn begin(kind: u8, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&u64::MAX.to_le_bytes());
}

/// Makes a call void after `at`, by the clock of the owner: a call that waited in the socket of a node
/// which had stopped is not executed when it continues.
pub(crate) fn void_after(call: &mut [u8], at: Timestamp) {
    if let Some(place) = call.get_mut(1..9) {
        place.copy_from_slice(&at.as_micros().to_le_bytes());
    }
}

/// Encodes a ping.
pub(crate) fn encode_ping() -> Vec<u8> {
    start(PING, 0)
}

/// Encodes a batch.
pub(crate) fn encode_decide(checks: &[Check<'_>], out: &mut Vec<u8>) {
    begin(DECIDE, out);
    put(out, checks.len() as u64);
    for check in checks {
        check.rule.write(out);
        put_bytes(out, check.key);
        check.amount.write(out);
        out.push(u8::from(check.binding) | u8::from(check.count_denied) << 1);
    }
}

/// Encodes an adjustment.
pub(crate) fn encode_adjust(rule: &Rule, key: &[u8], change: (Adjustment, Option<AdjustmentId>)) -> Vec<u8> {
    let mut out = start(ADJUST, 48 + key.len());
    rule.write(&mut out);
    put_bytes(&mut out, key);
    change.0.write(&mut out);
    match change.1 {
        None => out.push(0),
        Some(AdjustmentId(id)) => {
            out.push(1);
            out.extend_from_slice(&id.to_le_bytes());
        }
    }
    out
}

/// Encodes the holdings that this node knows, with the partitions that it wants.
pub(crate) fn encode_claim(claim: &Claim) -> Vec<u8> {
    let mut out = start(CLAIM, 16 * claim.holdings.len());
    put_bytes(&mut out, &claim.wanted);
    holdings::put_holdings(&mut out, claim.by.as_ref(), &claim.holdings);
    out
}

/// Encodes a request for the states of a key.
pub(crate) fn encode_copy(holding: &Arc<Holding>, key: &[u8], rules: &[Rule]) -> Vec<u8> {
    let mut out = start(COPY, 128 + key.len());
    put_bytes(&mut out, key);
    put(&mut out, rules.len() as u64);
    for rule in rules {
        rule.write(&mut out);
    }
    holdings::put_holdings(&mut out, None, &[(0, Arc::clone(holding))]);
    out
}

impl Call {
    /// Decodes a call and the time after which it is void.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, Timestamp), WireError> {
        let mut from = Reader(bytes);
        let kind = from.byte()?;
        let not_after = Timestamp::from_micros(from.fixed()?);
        let call = match kind {
            PING => Self::Ping,
            DECIDE => {
                let count = from.count(MAX_CHECKS)?;
                let checks = (0..count).map(|_| check(&mut from)).collect::<Result<_, _>>()?;
                Self::Decide(checks)
            }
            ADJUST => {
                let (rule, key): (_, Box<[u8]>) = (Rule::read(&mut from)?, from.bytes()?.into());
                let adjustment = Adjustment::read(&mut from)?;
                let id = match from.byte()? {
                    0 => None,
                    1 => Some(AdjustmentId(from.wide()?)),
                    _ => return Err(WireError),
                };
                Self::Adjust(Box::new(KeyChange { rule, key, adjustment, id }))
            }
            CLAIM => {
                let wanted = from.bytes()?.to_vec();
                let (by, holdings) = holdings::holdings(&mut from)?;
                Self::Claim(Box::new(Claim { by, wanted, holdings }))
            }
            COPY => {
                let key = from.bytes()?.into();
                let count = from.count(MAX_CHECKS)?;
                let rules = (0..count).map(|_| Rule::read(&mut from)).collect::<Result<_, _>>()?;
                let (_, holdings) = holdings::holdings(&mut from)?;
                let (_, holding) = holdings.into_iter().next().ok_or(WireError)?;
                Self::Copy(Box::new(CopyRequest { holding, key, rules }))
            }
            _ => return Err(WireError),
        };
        from.end()?;
        Ok((call, not_after))
    }
}

fn check(from: &mut Reader<'_>) -> Result<OwnedCheck, WireError> {
    let (rule, key) = (Rule::read(from)?, from.bytes()?.into());
    let amount = tollgate_core::Amount::read(from)?;
    let flags = from.byte()?;
    if flags > 3 {
        return Err(WireError);
    }
    Ok(OwnedCheck { rule, key, amount, binding: flags & 1 != 0, count_denied: flags & 2 != 0 })
}

impl Reply {
    /// Returns the time of the node that replied, if the reply has it.
    pub(crate) const fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Pong(at) | Self::Adjusted(_, at) | Self::Copied { at, .. } => Some(*at),
            Self::Decided(answer, _) => Some(answer.at),
            Self::NotHolder(..) | Self::Holdings(_) | Self::Late => None,
        }
    }

    /// Encodes the reply.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Pong(at) => {
                out.push(PING);
                put(&mut out, at.as_micros());
            }
            Self::Decided(answer, renewed) => {
                out.push(DECIDE);
                put(&mut out, answer.at.as_micros());
                out.push(answer.admitted.into());
                put(&mut out, answer.outcomes.len() as u64);
                answer.outcomes.iter().for_each(|outcome| outcome.write(&mut out));
                put(&mut out, renewed.len() as u64);
                renewed.iter().for_each(|&at| put(&mut out, at as u64));
            }
            Self::Adjusted(outcome, at) => {
                out.push(ADJUST);
                put(&mut out, at.as_micros());
                outcome.write(&mut out);
            }
            Self::NotHolder(partition, holding) => {
                out.push(NOT_HOLDER);
                holdings::put_holdings(&mut out, None, &[(*partition, Arc::clone(holding))]);
            }
            Self::Holdings(known) => {
                out.push(CLAIM);
                holdings::put_holdings(&mut out, None, known);
            }
            Self::Copied { incarnation, at, states } => {
                out.push(COPY);
                out.extend_from_slice(&incarnation.to_le_bytes());
                put(&mut out, at.as_micros());
                put(&mut out, states.len() as u64);
                for state in states {
                    put_bytes(&mut out, &state.as_ref().map(State::encode).unwrap_or_default());
                }
            }
            Self::Late => out.push(LATE),
        }
        out
    }

    /// Decodes a reply.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let kind = from.byte()?;
        let reply = match kind {
            PING => Self::Pong(time(&mut from)?),
            DECIDE => {
                let (at, admitted) = (time(&mut from)?, from.flag()?);
                let count = from.count(MAX_CHECKS)?;
                let outcomes =
                    (0..count).map(|_| Outcome::read(&mut from)).collect::<Result<Outcomes, _>>()?;
                let count = from.count(MAX_CHECKS)?;
                let index = |from: &mut Reader<'_>| from.count(MAX_CHECKS);
                let renewed = (0..count).map(|_| index(&mut from)).collect::<Result<_, _>>()?;
                Self::Decided(Answer { admitted, at, outcomes }, renewed)
            }
            ADJUST => {
                let at = time(&mut from)?;
                Self::Adjusted(Outcome::read(&mut from)?, at)
            }
            NOT_HOLDER => {
                let (_, holdings) = holdings::holdings(&mut from)?;
                let (partition, holding) = holdings.into_iter().next().ok_or(WireError)?;
                Self::NotHolder(partition, holding)
            }
            CLAIM => Self::Holdings(holdings::holdings(&mut from)?.1),
            COPY => {
                let (incarnation, at) = (from.fixed()?, time(&mut from)?);
                let count = from.count(MAX_CHECKS)?;
                let state = |from: &mut Reader<'_>| match from.bytes()? {
                    [] => Ok(None),
                    bytes => State::decode(bytes).map(Some).map_err(|_| WireError),
                };
                let states = (0..count).map(|_| state(&mut from)).collect::<Result<_, _>>()?;
                Self::Copied { incarnation, at, states }
            }
            LATE => Self::Late,
            _ => return Err(WireError),
        };
        from.end()?;
        Ok(reply)
    }
}

fn time(from: &mut Reader<'_>) -> Result<Timestamp, WireError> {
    Ok(Timestamp::from_micros(from.number()?))
}

#[cfg(test)]
mod tests;
