//! Quotas as bytes, so that a process can read the rules of another one.
//!
//! The first byte holds the same version as that of a state and the kind of the quota, followed by
//! LEB128 numbers. Decoding checks the numbers as the constructors do: any input ends in a valid
//! quota or in an error.

use alloc::vec::Vec;

use super::{DecodeError, header};
use crate::algorithm::{
    Algorithm as _, Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow, Queue, SlidingLog,
    SlidingParts, SlidingWindow, Window,
};
use crate::quota::Quota;
use crate::rate::{QuotaError, Rate};
use crate::time::Span;
use crate::varint::{ReadError, Reader, put};

/// The marks of an optional part of a bucket.
const SHARED: u64 = 1;
const QUEUE: u64 = 2;
const QUEUE_WAIT: u64 = 4;

const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month];

impl From<QuotaError> for DecodeError {
    fn from(_: QuotaError) -> Self {
        Self::Damaged
    }
}

impl Quota {
    /// Encodes the quota.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        match self {
            Self::Bucket(it) => {
                out.push(header(0));
                put_rate(&mut out, it.rate());
                let mark = |is: bool, mark: u64| if is { mark } else { 0 };
                let (queue, shared) = (it.queue(), mark(it.is_shared(), SHARED));
                let wait = queue.and_then(|queue| queue.wait);
                put(&mut out, shared | mark(queue.is_some(), QUEUE) | mark(wait.is_some(), QUEUE_WAIT));
                match queue {
                    None => put(&mut out, it.capacity()),
                    Some(queue) => {
                        put(&mut out, queue.length);
                        put(&mut out, queue.free);
                        put(&mut out, wait.unwrap_or(Span::ZERO).as_micros());
                    }
                }
            }
            Self::FixedWindow(it) => {
                out.push(header(1));
                put(&mut out, it.capacity());
                put(&mut out, it.is_tally().into());
                put_window(&mut out, it.window());
            }
            Self::SlidingWindow(it) => {
                out.push(header(2));
                put_rate(&mut out, it.rate());
            }
            Self::SlidingLog(it) => {
                out.push(header(3));
                put_rate(&mut out, it.rate());
            }
            Self::Concurrency(it) => {
                out.push(header(4));
                put(&mut out, it.slots().into());
                put(&mut out, it.ttl().as_micros());
            }
            Self::SlidingParts(it) => {
                out.push(header(5));
                put_rate(&mut out, it.rate());
                put(&mut out, it.parts().into());
                put(&mut out, it.is_strict().into());
            }
        }
        out
    }

    /// Decodes a quota.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, Quota, QuotaError, Rate};
    /// let quota = Quota::from(Bucket::new(Rate::per_minute(2))?.with_burst(7)?);
    /// assert_eq!(Quota::decode(&quota.encode()), Ok(quota));
    /// assert!(Quota::decode(b"garbage").is_err());
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (first, mut rest) = Reader::open(bytes)?;
        let quota = match first & 0x0f {
            0 => Self::from(rest.bucket()?),
            1 => Self::from(rest.fixed_window()?),
            2 => Self::from(SlidingWindow::new(rest.rate()?)?),
            3 => Self::from(SlidingLog::new(rest.rate()?)?),
            4 => Self::from(Concurrency::new(rest.small()?, rest.span()?)?),
            5 => {
                let parts = SlidingParts::new(rest.rate()?, rest.small()?)?;
                Self::from(if rest.flag()? { parts.strict() } else { parts })
            }
            _ => return Err(DecodeError::Unknown(first)),
        };
        rest.end()?;
        Ok(quota)
    }
}

fn put_rate(out: &mut Vec<u8>, rate: Rate) {
    put(out, rate.count);
    put(out, rate.period.as_micros());
}

fn put_window(out: &mut Vec<u8>, window: &Window) {
    match window {
        Window::Epoch(length) => {
            out.push(0);
            put(out, length.as_micros());
        }
        Window::Anchored(length) => {
            out.push(1);
            put(out, length.as_micros());
        }
        Window::Calendar(calendar) => {
            out.push(2);
            let unit = UNITS.iter().position(|unit| *unit == calendar.unit()).unwrap_or(0);
            put(out, unit as u64);
            out.extend_from_slice(calendar.zone().as_bytes());
        }
    }
}

impl Reader<'_> {
    fn span(&mut self) -> Result<Span, ReadError> {
        self.number().map(Span::from_micros)
    }

    fn rate(&mut self) -> Result<Rate, ReadError> {
        Ok(Rate::new(self.number()?, self.span()?))
    }

    fn bucket(&mut self) -> Result<Bucket, DecodeError> {
        let bucket = Bucket::new(self.rate()?)?;
        let marks = self.number()?;
        let bucket = if marks & SHARED != 0 { bucket.shared() } else { bucket };
        if marks & QUEUE == 0 {
            return Ok(bucket.with_burst(self.number()?)?);
        }
        let (length, free, wait) = (self.number()?, self.number()?, self.span()?);
        let wait = (marks & QUEUE_WAIT != 0).then_some(wait);
        Ok(bucket.with_queue(Queue { length, wait, free })?)
    }

    fn fixed_window(&mut self) -> Result<FixedWindow, DecodeError> {
        let (limit, is_tally) = (self.number()?, self.flag()?);
        let window = match self.number()? {
            0 => Window::Epoch(self.span()?),
            1 => Window::Anchored(self.span()?),
            2 => Window::Calendar(self.calendar()?),
            _ => return Err(DecodeError::Damaged),
        };
        Ok(if is_tally { FixedWindow::tally(limit, window)? } else { FixedWindow::new(limit, window)? })
    }

    /// Reads a calendar, whose zone ends the bytes. A zone that this build does not know is an error.
    fn calendar(&mut self) -> Result<Calendar, DecodeError> {
        let unit = usize::try_from(self.number()?).ok().and_then(|at| UNITS.get(at).copied());
        let zone = core::str::from_utf8(core::mem::take(&mut self.0)).ok();
        unit.zip(zone).and_then(|(unit, zone)| calendar(unit, zone)).ok_or(DecodeError::Damaged)
    }
}

#[cfg(feature = "calendar")]
fn calendar(unit: CalendarUnit, zone: &str) -> Option<Calendar> {
    Calendar::new(unit, zone)
}

#[cfg(not(feature = "calendar"))]
const fn calendar(_: CalendarUnit, _: &str) -> Option<Calendar> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas() -> Vec<Quota> {
        let rate = Rate::new(7, Span::from_minutes(1));
        let bucket = Bucket::new(rate).unwrap();
        let queue = Queue::new(9).with_free(2);
        vec![
            bucket.into(),
            bucket.with_burst(31).unwrap().into(),
            bucket.with_burst(31).unwrap().shared().into(),
            bucket.with_queue(queue).unwrap().into(),
            bucket.with_queue(queue.with_wait(Span::from_secs(3))).unwrap().into(),
            FixedWindow::epoch(rate).unwrap().into(),
            FixedWindow::anchored(rate).unwrap().into(),
            FixedWindow::tally(0, Window::Epoch(Span::from_hours(1))).unwrap().into(),
            #[cfg(feature = "calendar")]
            FixedWindow::new(
                5,
                Window::Calendar(Calendar::new(CalendarUnit::Month, "Europe/Paris").unwrap()),
            )
            .unwrap()
            .into(),
            SlidingWindow::new(rate).unwrap().into(),
            SlidingParts::new(rate, 6).unwrap().into(),
            SlidingParts::new(rate, 6).unwrap().strict().into(),
            SlidingLog::new(rate).unwrap().into(),
            Concurrency::new(5, Span::from_secs(30)).unwrap().into(),
        ]
    }

    #[test]
    fn every_quota_is_read_back_as_it_was() {
        for quota in quotas() {
            assert_eq!(Quota::decode(&quota.encode()).as_ref(), Ok(&quota), "{quota}");
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_valid_quota() {
        for quota in quotas() {
            let bytes = quota.encode();
            for length in 0..bytes.len() {
                // A zone may be cut to the name of another one.
                if let Ok(other) = Quota::decode(&bytes[..length]) {
                    assert_ne!(other, quota);
                }
            }
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    if let Ok(other) = Quota::decode(&damaged) {
                        assert_eq!(Quota::decode(&other.encode()), Ok(other));
                    }
                }
            }
        }
        assert_eq!(Quota::decode(&[]), Err(DecodeError::Damaged));
        assert_eq!(Quota::decode(&[0x2f]), Err(DecodeError::Unknown(0x2f)));
    }
}
