//! Quotas as bytes. They are read through their constructors, so a quota from outside is as valid as
//! one of a policy.

use tollgate_core::varint::{Reader, put, put_bytes};
use tollgate_core::{
    Algorithm as _, Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow, Queue, Quota, QuotaError, Rate,
    SlidingLog, SlidingParts, SlidingWindow, Span, Window,
};

use super::WireError;
use super::values::Wire;

const BUCKET: u8 = 0;
const FIXED_WINDOW: u8 = 1;
const SLIDING_WINDOW: u8 = 2;
const SLIDING_PARTS: u8 = 3;
const SLIDING_LOG: u8 = 4;
const CONCURRENCY: u8 = 5;

/// The flags of a bucket.
const SHARED: u8 = 1;
const QUEUE: u8 = 2;
const QUEUE_WAIT: u8 = 4;

impl Wire for Quota {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bucket(bucket) => {
                out.push(BUCKET);
                bucket.write(out);
            }
            Self::FixedWindow(window) => {
                out.push(FIXED_WINDOW);
                out.push(window.is_tally().into());
                put(out, window.capacity());
                window.window().write(out);
            }
            Self::SlidingWindow(window) => {
                out.push(SLIDING_WINDOW);
                window.rate().write(out);
            }
            Self::SlidingParts(window) => {
                out.push(SLIDING_PARTS);
                window.rate().write(out);
                put(out, window.parts().into());
                out.push(window.is_strict().into());
            }
            Self::SlidingLog(log) => {
                out.push(SLIDING_LOG);
                log.rate().write(out);
            }
            Self::Concurrency(slots) => {
                out.push(CONCURRENCY);
                put(out, slots.slots().into());
                slots.ttl().write(out);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match from.byte()? {
            BUCKET => Bucket::read(from)?.into(),
            FIXED_WINDOW => {
                let (is_tally, limit) = (from.flag()?, from.number()?);
                let window = Window::read(from)?;
                let create = if is_tally { FixedWindow::tally } else { FixedWindow::new };
                valid(create(limit, window))?.into()
            }
            SLIDING_WINDOW => valid(SlidingWindow::new(Rate::read(from)?))?.into(),
            SLIDING_PARTS => {
                let parts = valid(SlidingParts::new(Rate::read(from)?, from.small()?))?;
                if from.flag()? { parts.strict() } else { parts }.into()
            }
            SLIDING_LOG => valid(SlidingLog::new(Rate::read(from)?))?.into(),
            CONCURRENCY => valid(Concurrency::new(from.small()?, Span::read(from)?))?.into(),
            _ => return Err(WireError),
        })
    }
}

fn valid<T>(quota: Result<T, QuotaError>) -> Result<T, WireError> {
    quota.map_err(|_| WireError)
}

impl Wire for Rate {
    fn write(&self, out: &mut Vec<u8>) {
        put(out, self.count);
        self.period.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self::new(from.number()?, Span::read(from)?))
    }
}

impl Wire for Bucket {
    fn write(&self, out: &mut Vec<u8>) {
        let queue = self.queue();
        let has_wait = queue.is_some_and(|it| it.wait.is_some());
        let flags = [(self.is_shared(), SHARED), (queue.is_some(), QUEUE), (has_wait, QUEUE_WAIT)];
        out.push(flags.iter().map(|&(is_set, flag)| if is_set { flag } else { 0 }).sum());
        self.rate().write(out);
        match queue {
            None => put(out, self.capacity()),
            Some(Queue { length, wait, free }) => {
                put(out, length);
                put(out, free);
                if let Some(wait) = wait {
                    wait.write(out);
                }
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = from.byte()?;
        if flags > SHARED | QUEUE | QUEUE_WAIT {
            return Err(WireError);
        }
        let bucket = valid(Self::new(Rate::read(from)?))?;
        let bucket = if flags & QUEUE == 0 {
            valid(bucket.with_burst(from.number()?))?
        } else {
            let mut queue = Queue::new(from.number()?).with_free(from.number()?);
            if flags & QUEUE_WAIT != 0 {
                queue = queue.with_wait(Span::read(from)?);
            }
            valid(bucket.with_queue(queue))?
        };
        Ok(if flags & SHARED == 0 { bucket } else { bucket.shared() })
    }
}

const EPOCH: u8 = 0;
const ANCHORED: u8 = 1;
const CALENDAR: u8 = 2;
const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Hour, CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month];

impl Wire for Window {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Epoch(length) => {
                out.push(EPOCH);
                length.write(out);
            }
            Self::Anchored(length) => {
                out.push(ANCHORED);
                length.write(out);
            }
            Self::Calendar(calendar) => {
                out.push(CALENDAR);
                let unit = UNITS.iter().position(|unit| *unit == calendar.unit()).unwrap_or(0);
                put(out, unit as u64);
                put_bytes(out, calendar.zone().as_bytes());
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match from.byte()? {
            EPOCH => Self::Epoch(Span::read(from)?),
            ANCHORED => Self::Anchored(Span::read(from)?),
            CALENDAR => {
                let unit = *UNITS.get(from.count(UNITS.len())?).ok_or(WireError)?;
                let zone = from.text()?;
                Self::Calendar(Calendar::new(unit, zone).ok_or(WireError)?)
            }
            _ => return Err(WireError),
        })
    }
}
