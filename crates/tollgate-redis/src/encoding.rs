//! A batch as the script reads it: one `MessagePack` array of whole numbers.
//!
//! Everything that needs more than a double's 53 bits is worked out here and handed
//! over in two parts: the price of some units of a bucket is ticks and grains.
//! A calendar's pages come along for the time that the server is believed to have;
//! if it has another, it says so and is asked again.

use tollgate_core::{
    Adjustment, Algorithm, Amount, Bucket, Calendar, Overdraft, Quota, TickBucket, Timestamp, Window,
};

use crate::batch::{BatchBuilder, CheckRequest, Item};

/// More units than any limit holds or ever owes: what is larger means the same.
const MAX_UNITS: u64 = 1 << 50;

/// The shortest era that there is.
const MIN_EPOCH: u64 = 1_000_000;

/// A bucket's expiry is set anew once in an era, a sixteenth of the time it takes to
/// fill, and no more than that is it kept longer than it counts. Buckets that share their
/// states share their eras: who relies on an expiry relies on what another has set.
fn epoch(bucket: &Bucket, fill_time: u64) -> u64 {
    if bucket.is_shared() { MIN_EPOCH } else { (fill_time / 16).max(MIN_EPOCH) }
}

/// The batch as bytes for the script that knows everything, or for the plain one if
/// that is enough for it (`true`).
pub(crate) fn encode(batch: &BatchBuilder, now: Timestamp) -> (bool, Vec<u8>) {
    match encode_plain(batch) {
        Some(plain) => (true, plain),
        None => (false, encode_general(batch, now)),
    }
}

/// For the plain script; `None` where more is asked than it knows.
fn encode_plain(batch: &BatchBuilder) -> Option<Vec<u8>> {
    let mut out = Writer::new(64 + 16 * batch.items.len());
    out.number(batch.rules.len() as u64);
    for (_, quota) in &batch.rules {
        let Quota::Bucket(bucket) = quota else { return None };
        let full = bucket.in_ticks()?.full();
        out.number(full);
        out.number(epoch(bucket, full));
        out.number(max_debt(bucket).0);
    }
    for key in &batch.keys {
        if !key.before.is_empty() {
            return None;
        }
        out.number(key.rule as u64 + 1);
    }
    out.number(batch.items.len() as u64);
    for item in &batch.items {
        let Item::Requests { checks, many } = item else { return None };
        out.number(*many as u64);
        out.number(checks.len() as u64);
        for asked in checks {
            let (Amount::Exactly(units), true, false) = (asked.amount, asked.binding, asked.count_denied)
            else {
                return None;
            };
            let bucket = plain(quota_of(batch, asked.key))?;
            out.number(asked.key as u64 + 1);
            // What can never be had costs more than there ever is.
            out.number(bucket.price(units).unwrap_or(bucket.full() + 1));
        }
    }
    Some(out.finish())
}

const fn plain(quota: &Quota) -> Option<&TickBucket> {
    match quota {
        Quota::Bucket(bucket) => bucket.in_ticks(),
        _ => None,
    }
}

/// For a server that is believed to have this time.
fn encode_general(batch: &BatchBuilder, now: Timestamp) -> Vec<u8> {
    let mut out = Writer::new(64 + 24 * batch.rules.len() + 32 * batch.items.len());
    out.number(batch.rules.len() as u64);
    for (_, quota) in &batch.rules {
        write_quota(&mut out, quota, now);
    }
    out.number(batch.keys.len() as u64);
    for key in &batch.keys {
        out.number(key.rule as u64 + 1);
        out.number(key.before.len() as u64);
        let quota = |rule: usize| &batch.rules[rule].1;
        for &before in &key.before {
            out.number(before as u64 + 1);
            out.number(quota(key.rule).is_raise_of(quota(before)).into());
        }
    }
    out.number(batch.items.len() as u64);
    for item in &batch.items {
        match item {
            Item::Requests { checks, many } => {
                out.number(0);
                out.number(*many as u64);
                out.number(checks.len() as u64);
                checks.iter().for_each(|asked| write_check(&mut out, batch, asked));
            }
            Item::Change { key, adjustment } => write_change(&mut out, batch, *key, *adjustment),
        }
    }
    out.finish()
}

fn write_quota(out: &mut Writer, quota: &Quota, now: Timestamp) {
    match quota {
        Quota::Bucket(bucket) => {
            let (ticks, grains) = price(bucket, bucket.capacity());
            let (den, unit) = (bucket.grains_per_tick().into(), bucket.grains_per_unit());
            let (deepest_t, deepest_g) = max_debt(bucket);
            let numbers = [1, den, unit, ticks, grains, bucket.capacity(), epoch(bucket, ticks)];
            out.counted(&[&numbers[..], &[deepest_t, deepest_g]].concat());
        }
        Quota::FixedWindow(fixed) => {
            let (limit, longest) = (fixed.capacity(), fixed.window().longest().as_micros());
            let most = fixed.max_count(Overdraft::None);
            match fixed.window() {
                Window::Epoch(_) => out.counted(&[2, limit, longest, 0, most]),
                Window::Anchored(_) => out.counted(&[2, limit, longest, 1, most]),
                Window::Calendar(calendar) => {
                    let [start, end, next] = pages(calendar, now);
                    out.counted(&[2, limit, longest, 2, most, start, end, next]);
                }
            }
        }
        Quota::SlidingWindow(window) => {
            out.counted(&[3, window.rate().count, window.rate().period.as_micros()]);
        }
        Quota::SlidingParts(it) => {
            let (rate, step) = (it.rate(), it.resolution().as_micros());
            let strict = it.is_strict().into();
            out.counted(&[4, rate.count, rate.period.as_micros(), it.parts().into(), step, strict]);
        }
        Quota::SlidingLog(log) => out.counted(&[5, log.rate().count, log.rate().period.as_micros()]),
        Quota::Concurrency(slots) => out.counted(&[6, slots.slots().into(), slots.ttl().as_micros()]),
    }
}

/// Start and end of the page of now, and the end of the next.
fn pages(calendar: &Calendar, now: Timestamp) -> [u64; 3] {
    let (start, end) = calendar.around(now);
    let (_, next) = calendar.around(end);
    [start, end, next].map(Timestamp::as_micros)
}

fn write_check(out: &mut Writer, batch: &BatchBuilder, asked: &CheckRequest) {
    let quota = quota_of(batch, asked.key);
    let slots = matches!(quota, Quota::Concurrency(_));
    let looks = slots && matches!(asked.amount, Amount::Exactly(0) | Amount::UpTo(0));
    let up_to = matches!(asked.amount, Amount::UpTo(_));
    out.number(asked.key as u64 + 1);
    // Who asks for the wrong thing is refused and pays nothing.
    let counts = asked.count_denied && !matches!(asked.amount, Amount::Slot(_));
    let manner = [(asked.binding, 1), (counts, 2), (up_to && !slots, 4), (looks, 8)];
    out.number(manner.iter().map(|&(is, value)| if is { value } else { 0 }).sum());
    match asked.amount {
        Amount::Slot(owner) if slots => out.owner(owner.0),
        // One more than there ever is: never.
        Amount::Slot(_) => write_units(out, quota, quota.capacity() + 1),
        Amount::Exactly(units) | Amount::UpTo(units) => {
            // One more than there ever is says "never" as well as any, but to a tally,
            // which counts it.
            let tally = matches!(quota, Quota::FixedWindow(it) if it.is_tally());
            write_units(out, quota, units.min(if tally { MAX_UNITS } else { quota.capacity() + 1 }));
        }
    }
}

fn write_change(out: &mut Writer, batch: &BatchBuilder, key: usize, adjustment: Adjustment) {
    let quota = quota_of(batch, key);
    let (what, units) = match adjustment {
        Adjustment::Refund { units, .. } => (1, units),
        Adjustment::Grant { units } => (2, units),
        Adjustment::Charge { units, overdraft: Overdraft::None } => (3, units),
        Adjustment::Charge { units, overdraft: Overdraft::OneCapacity | Overdraft::Unlimited } => (4, units),
        Adjustment::Reset => (5, 0),
        Adjustment::Release { .. } => (6, 0),
    };
    out.number(what);
    out.number(key as u64 + 1);
    match adjustment {
        Adjustment::Reset => return,
        Adjustment::Release { owner } => return out.owner(owner.0),
        Adjustment::Refund { taken_at, .. } => out.number(taken_at.as_micros().min(MAX_UNITS << 2)),
        Adjustment::Grant { .. } | Adjustment::Charge { .. } => {}
    }
    write_units(
        out,
        quota,
        if let Quota::Bucket(it) = quota { units.min(2 * it.capacity()) } else { units.min(MAX_UNITS) },
    );
}

fn write_units(out: &mut Writer, quota: &Quota, units: u64) {
    out.number(units);
    if let Quota::Bucket(bucket) = quota {
        let (ticks, grains) = price(bucket, units);
        out.number(ticks);
        out.number(grains);
    }
}

/// What some units of a bucket cost, in ticks and grains.
fn price(bucket: &Bucket, units: u64) -> (u64, u64) {
    in_ticks(bucket, u128::from(units) * u128::from(bucket.grains_per_unit()))
}

/// What a bucket can owe at most, in ticks and grains.
fn max_debt(bucket: &Bucket) -> (u64, u64) {
    in_ticks(bucket, bucket.max_debt())
}

fn in_ticks(bucket: &Bucket, grains: u128) -> (u64, u64) {
    let per_tick = u128::from(bucket.grains_per_tick());
    let fits = |number: u128| u64::try_from(number).unwrap_or(MAX_UNITS);
    (fits(grains / per_tick), fits(grains % per_tick))
}

pub(crate) fn quota_of(batch: &BatchBuilder, key: usize) -> &Quota {
    &batch.rules[batch.keys[key].rule].1
}

/// Writes an array whose length is known at the end.
struct Writer {
    out: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new(capacity: usize) -> Self {
        let mut out = Vec::with_capacity(capacity);
        out.extend_from_slice(&[0xdd, 0, 0, 0, 0]);
        Self { out, count: 0 }
    }

    fn number(&mut self, number: u64) {
        self.count += 1;
        match number {
            0..0x80 => self.out.push((number & 0x7f) as u8),
            0x80..=0xffff_ffff => {
                self.out.push(0xce);
                self.out.extend_from_slice(&number.to_be_bytes()[4..]);
            }
            _ => {
                self.out.push(0xcf);
                self.out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Several, with their number before them.
    fn counted(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        for &number in numbers {
            self.number(number);
        }
    }

    /// An owner as 32 hexadecimal digits, which a person can look for.
    fn owner(&mut self, owner: u128) {
        self.count += 1;
        self.out.extend_from_slice(&[0xd9, 32]);
        self.out.extend((0..32).map(|at| b"0123456789abcdef"[(owner >> (124 - 4 * at) & 15) as usize]));
    }

    fn finish(mut self) -> Vec<u8> {
        self.out[1..5].copy_from_slice(&self.count.to_be_bytes());
        self.out
    }
}
