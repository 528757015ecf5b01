//! Rules, amounts, adjustments and outcomes as bytes.

use tollgate_core::varint::{Reader, put};
use tollgate_core::{
    Adjustment, Amount, ChargeTimes, LeaseRequest, Outcome, Overdraft, Owner, Predecessor, Quota, Rule,
    RuleId, Span, Timestamp, Verdict,
};

use super::WireError;

/// The maximum number of predecessors of a rule, as in `tollgate_core`.
const MAX_PREDECESSORS: usize = 32;

/// A value as bytes.
pub(super) trait Wire: Sized {
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value.
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;
}

impl Wire for Span {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self.as_micros());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        from.number().map(Self::from_micros)
    }
}

impl Wire for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self.as_micros());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        from.number().map(Self::from_micros)
    }
}

impl Wire for RuleId {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        from.fixed().map(Self)
    }
}

impl Wire for Owner {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        from.wide().map(Self)
    }
}

/// The name and the lease of a rule do not matter to the owner of a key.
impl Wire for Rule {
    fn write(&self, out: &mut Vec<u8>) {
        self.id.write(out);
        self.quota.write(out);
        put(out, self.predecessors().count() as u64);
        for before in self.predecessors() {
            before.id.write(out);
            before.quota.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let (id, quota) = (RuleId::read(from)?, Quota::read(from)?);
        let count = from.count(MAX_PREDECESSORS)?;
        let before = |from: &mut Reader<'_>| Ok((RuleId::read(from)?, Quota::read(from)?));
        let all: Vec<(RuleId, Quota)> = (0..count).map(|_| before(from)).collect::<Result<_, _>>()?;
        let before = all
            .into_iter()
            .rev()
            .fold(None, |before, (id, quota)| Some(Box::new(Predecessor { id, quota, before })));
        Ok(Self { name: "".into(), id, quota, before, lease: None, far: None })
    }
}

impl Wire for Amount {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Exactly(units) => {
                out.push(0);
                put(out, *units);
            }
            Self::UpTo(units) => {
                out.push(1);
                put(out, *units);
            }
            Self::Slot(owner) => {
                out.push(2);
                owner.write(out);
            }
            Self::Lease(LeaseRequest { units, ttl }) => {
                out.push(3);
                put(out, (*units).into());
                ttl.write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match from.byte()? {
            0 => Self::Exactly(from.number()?),
            1 => Self::UpTo(from.number()?),
            2 => Self::Slot(Owner::read(from)?),
            3 => Self::Lease(LeaseRequest { units: from.small()?, ttl: Span::read(from)? }),
            _ => return Err(WireError),
        })
    }
}

const REFUND: u8 = 0;
const GRANT: u8 = 1;
const CHARGE: u8 = 2;
const RESET: u8 = 3;
const RELEASE: u8 = 4;
const RENEW: u8 = 5;
const RETURN_LEASE: u8 = 6;
const RELEASE_OLDEST: u8 = 7;

impl Wire for Adjustment {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Refund { units, charge } => {
                out.push(REFUND);
                put(out, *units);
                charge.at.write(out);
                charge.until.write(out);
            }
            Self::Grant { units } => {
                out.push(GRANT);
                put(out, *units);
            }
            Self::Charge { units, overdraft } => {
                out.push(CHARGE);
                put(out, *units);
                out.push(match overdraft {
                    Overdraft::None => 0,
                    Overdraft::OneCapacity => 1,
                    Overdraft::Unlimited => 2,
                });
            }
            Self::Reset => out.push(RESET),
            Self::Release { owner } => {
                out.push(RELEASE);
                owner.write(out);
            }
            Self::ReleaseOldest { slots } => {
                out.push(RELEASE_OLDEST);
                put(out, *slots);
            }
            Self::Renew { owner } => {
                out.push(RENEW);
                owner.write(out);
            }
            Self::ReturnLease { units, taken_at, ttl } => {
                out.push(RETURN_LEASE);
                put(out, (*units).into());
                taken_at.write(out);
                ttl.write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match from.byte()? {
            REFUND => {
                let units = from.number()?;
                let charge = ChargeTimes { at: Timestamp::read(from)?, until: Timestamp::read(from)? };
                Self::Refund { units, charge }
            }
            GRANT => Self::Grant { units: from.number()? },
            CHARGE => {
                let units = from.number()?;
                let overdraft = match from.byte()? {
                    0 => Overdraft::None,
                    1 => Overdraft::OneCapacity,
                    2 => Overdraft::Unlimited,
                    _ => return Err(WireError),
                };
                Self::Charge { units, overdraft }
            }
            RESET => Self::Reset,
            RELEASE => Self::Release { owner: Owner::read(from)? },
            RELEASE_OLDEST => Self::ReleaseOldest { slots: from.number()? },
            RENEW => Self::Renew { owner: Owner::read(from)? },
            RETURN_LEASE => {
                let units = from.small()?;
                Self::ReturnLease { units, taken_at: Timestamp::read(from)?, ttl: Span::read(from)? }
            }
            _ => return Err(WireError),
        })
    }
}

impl Wire for Outcome {
    fn write(&self, out: &mut Vec<u8>) {
        match self.verdict {
            Verdict::Admitted { units, wait, leased: _ } => {
                out.push(0);
                put(out, units);
                wait.write(out);
            }
            Verdict::Refused { retry_after } => {
                out.push(1);
                retry_after.write(out);
            }
            Verdict::Never => out.push(2),
        }
        put(out, self.limit);
        put(out, self.remaining);
        self.reset_after.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let verdict = match from.byte()? {
            0 => Verdict::Admitted { units: from.number()?, wait: Span::read(from)?, leased: false },
            1 => Verdict::Refused { retry_after: Span::read(from)? },
            2 => Verdict::Never,
            _ => return Err(WireError),
        };
        let (limit, remaining) = (from.number()?, from.number()?);
        Ok(Self { verdict, limit, remaining, reset_after: Span::read(from)? })
    }
}
