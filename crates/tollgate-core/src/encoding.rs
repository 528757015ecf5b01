//! States as bytes: compact, versioned, and safe to decode from untrusted input.
//!
//! The first byte holds version and algorithm, followed by LEB128 numbers. A bucket costs about ten
//! bytes. Decoding any input ends in a state that every algorithm accepts, or in an error. It never
//! panics and never allocates more than the length of the input.
//!
//! `quota` does the same for quotas.

mod quota;

use alloc::vec::Vec;

use crate::algorithm::{
    BucketState, FixedWindowState, Lease, Leases, Owner, SlidingLogState, SlidingPartsState,
    SlidingWindowState,
};
use crate::quota::State;
use crate::time::Timestamp;
use crate::varint::{ReadError, Reader, put};

/// The encoding version, which increases when the meaning of the bytes changes. Readers refuse
/// unknown versions.
const VERSION: u8 = 1;

/// Error returned when bytes do not decode to a state or a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes were written by a newer Tollgate, or not by Tollgate at all.
    #[error("not a state this version knows (first byte {0:#04x})")]
    Unknown(u8),
    /// The bytes end too early, continue after the end, or hold a number out of range.
    #[error("the state is damaged")]
    Damaged,
}

impl State {
    /// Encodes the state.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            Self::Bucket(state) => {
                out.push(header(0));
                put(&mut out, state.tat.as_micros());
                put(&mut out, state.grains.into());
            }
            Self::FixedWindow(state) => {
                out.push(header(1));
                put(&mut out, state.end.as_micros());
                put(&mut out, state.count);
            }
            Self::SlidingWindow(state) => {
                out.push(header(2));
                put(&mut out, state.newest);
                put(&mut out, state.current.into());
                put(&mut out, state.previous.into());
            }
            Self::SlidingLog(state) => {
                out.push(header(3));
                let mut last = 0;
                for &(at, count) in &state.entries {
                    put(&mut out, at.as_micros().saturating_sub(last));
                    put(&mut out, count.into());
                    last = at.as_micros();
                }
            }
            Self::Concurrency(leases) => {
                out.push(header(4));
                for lease in &leases.held {
                    out.extend_from_slice(&lease.owner.0.to_le_bytes());
                    put(&mut out, lease.expires.as_micros());
                }
            }
            Self::SlidingParts(state) => {
                out.push(header(5));
                put(&mut out, state.newest().as_micros());
                // Newest first, each as its distance to the next newer one.
                let mut from = 0;
                for (first, last, count) in state.parts().rev() {
                    put(&mut out, u64::from(last - from));
                    put(&mut out, u64::from(first - last));
                    put(&mut out, count.into());
                    from = first;
                }
            }
        }
        out
    }

    /// Decodes a state.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Quota, Rate, State};
    /// let fresh = Quota::from(Bucket::new(Rate::per_minute(2)).expect("a valid rate")).fresh();
    /// assert_eq!(State::decode(&fresh.encode()), Ok(fresh));
    /// assert!(State::decode(b"garbage").is_err());
    /// ```
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (first, mut rest) = Reader::open(bytes)?;
        let state = match first & 0x0f {
            0 => Self::Bucket(BucketState { tat: rest.time()?, grains: rest.small()? }),
            1 => Self::FixedWindow(FixedWindowState { end: rest.time()?, count: rest.number()? }),
            // More than two counts were written by a window in equal parts, which no longer exists.
            2 => Self::SlidingWindow(SlidingWindowState {
                newest: rest.number()?,
                current: rest.small()?,
                previous: rest.small()?,
            }),
            3 => Self::SlidingLog(rest.log()?),
            4 => Self::Concurrency(rest.leases()?),
            5 => Self::SlidingParts(rest.parts()?),
            _ => return Err(DecodeError::Unknown(first)),
        };
        rest.end()?;
        Ok(state)
    }
}

const fn header(algorithm: u8) -> u8 {
    VERSION << 4 | algorithm
}

impl From<ReadError> for DecodeError {
    fn from(_: ReadError) -> Self {
        Self::Damaged
    }
}

impl<'a> Reader<'a> {
    /// Checks the version, and returns the first byte with a reader of the rest.
    fn open(bytes: &'a [u8]) -> Result<(u8, Self), DecodeError> {
        let (&first, rest) = bytes.split_first().ok_or(DecodeError::Damaged)?;
        if first >> 4 == VERSION { Ok((first, Self(rest))) } else { Err(DecodeError::Unknown(first)) }
    }

    fn time(&mut self) -> Result<Timestamp, ReadError> {
        self.number().map(Timestamp::from_micros)
    }

    fn log(&mut self) -> Result<SlidingLogState, DecodeError> {
        let (mut entries, mut last) = (Vec::new(), 0u64);
        while !self.0.is_empty() {
            let step = self.number()?;
            last = last.checked_add(step).ok_or(DecodeError::Damaged)?;
            let count: u32 = self.small()?;
            if count == 0 || (step == 0 && !entries.is_empty()) {
                return Err(DecodeError::Damaged);
            }
            entries.push((Timestamp::from_micros(last), count));
        }
        Ok(SlidingLogState { entries })
    }

    fn parts(&mut self) -> Result<SlidingPartsState, DecodeError> {
        let newest = self.time()?;
        let (mut parts, mut from) = (Vec::new(), 0u16);
        while !self.0.is_empty() {
            let last = self.back(from)?;
            let first = self.back(last)?;
            parts.push((first, last, self.small()?));
            from = first;
        }
        SlidingPartsState::new(newest, parts.into_iter().rev()).ok_or(DecodeError::Damaged)
    }

    /// Reads a step as its distance to another step.
    fn back(&mut self, from: u16) -> Result<u16, ReadError> {
        from.checked_add(self.small()?).ok_or(ReadError)
    }

    fn leases(&mut self) -> Result<Leases, DecodeError> {
        let mut held: Vec<Lease> = Vec::new();
        while !self.0.is_empty() {
            let lease = Lease { owner: Owner(self.wide()?), expires: self.time()? };
            if held.last().is_some_and(|before| before.expires > lease.expires) {
                return Err(DecodeError::Damaged);
            }
            held.push(lease);
        }
        Ok(Leases { held })
    }
}
