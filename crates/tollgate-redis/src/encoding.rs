//! Encodes a batch for the script: one `MessagePack` array of whole numbers.
//!
//! Values that need more than the 53 bits of a double are computed here and passed in two parts:
//! the price of units of a bucket consists of ticks and grains. Calendar pages are included for the
//! estimated time of the server. If the server's time is outside of them, the script reports that,
//! and the call is repeated.

use tollgate_core::{
    Adjustment, Algorithm, Amount, Bucket, Calendar, LeaseRequest, Overdraft, Quota, Span, Timestamp, Window,
};
use tollgate_store::ADJUSTMENT_ID_LIFETIME;

use crate::batch::{Batch, CheckRequest, Item};
use crate::script::{Script, Scripts};

/// The maximum number of units: more than any limit holds or owes, so larger numbers are
/// equivalent.
const MAX_UNITS: u64 = 1 << 50;

/// How much longer a marker is kept than its adjustment counts: clocks and deadlines differ.
const MARKER_MARGIN: Span = Span::from_secs(10);

/// The shortest epoch, in microseconds.
const MIN_EPOCH: u64 = 1_000_000;

/// The length of an epoch in microseconds. The expiry of a bucket is renewed once in an epoch,
/// which is a sixteenth of the fill time, and a key is kept at most that much longer than it
/// counts. Buckets that share states share epochs, because each relies on the expiry that another
/// has set.
fn epoch(bucket: &Bucket, fill_time: u64) -> u64 {
    if bucket.is_shared() || bucket.is_short_queue() { MIN_EPOCH } else { (fill_time / 16).max(MIN_EPOCH) }
}

/// Chooses the smallest script that is sufficient for the batch, and encodes the batch for it.
/// `now` is the time that the clock of the server is expected to show.
pub(crate) fn encode<'s>(batch: &Batch, scripts: &'s Scripts, now: Timestamp) -> (&'s Script, Vec<u8>) {
    if let Some(arguments) = encode_plain(batch) {
        return (scripts.plain(), arguments);
    }
    let quotas = batch.rules.iter().map(|(_, quota)| quota);
    (scripts.general(quotas), encode_general(batch, now))
}

/// Encodes for the plain script; `None` if the batch needs the general script.
fn encode_plain(batch: &Batch) -> Option<Vec<u8>> {
    let mut out = Writer::new(64 + 16 * batch.items.len());
    out.number(batch.rules.len() as u64);
    for (_, quota) in &batch.rules {
        let bucket = plain(quota)?;
        let full = u64::try_from(bucket.grains()).ok()?;
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
        let (checks, many) = match item {
            Item::Requests { checks, many } => (checks, many),
            Item::Change { key, adjustment, marker: None } => {
                write_plain_return(&mut out, batch, *key, *adjustment)?;
                continue;
            }
            Item::Change { .. } => return None,
        };
        if let [CheckRequest { key, amount: Amount::Lease(lease), binding: true, count_denied: false }] =
            checks[..]
        {
            let bucket = plain(batch.quota(key)).filter(|it| it.queue().is_none())?;
            out.number(0);
            out.number(1);
            out.number(key as u64 + 1);
            out.number(u64::from(lease.units).min(bucket.capacity()));
            out.number(bucket.grains_per_unit());
            out.number(pad(lease));
            continue;
        }
        out.number(*many as u64);
        out.number(checks.len() as u64);
        for check in checks {
            let (Amount::Exactly(units), true, false) = (check.amount, check.binding, check.count_denied)
            else {
                return None;
            };
            let bucket = plain(batch.quota(check.key))?;
            out.number(check.key as u64 + 1);
            // An amount that can never be met costs more than a full bucket.
            out.number(units.min(bucket.capacity() + 1) * bucket.grains_per_unit());
        }
    }
    Some(out.finish())
}

/// Writes the return of a lease for the plain script; `None` for any other change.
fn write_plain_return(out: &mut Writer, batch: &Batch, key: usize, adjustment: Adjustment) -> Option<()> {
    let Adjustment::ReturnLease { units, taken_at, ttl } = adjustment else { return None };
    let bucket = plain(batch.quota(key)).filter(|it| it.queue().is_none())?;
    out.number(0);
    out.number(2);
    out.number(key as u64 + 1);
    out.number(u64::from(units).min(bucket.max_adjustment()) * bucket.grains_per_unit());
    out.number(time(taken_at));
    out.number(time(taken_at + ttl));
    Some(())
}

/// The debt in ticks from which a bucket leases: twice the `ttl`.
fn pad(lease: LeaseRequest) -> u64 {
    2 * lease.ttl.as_micros().min(MAX_UNITS)
}

/// A time that a double can hold: later times are equivalent.
fn time(at: Timestamp) -> u64 {
    at.as_micros().min(MAX_UNITS << 2)
}

/// Returns the bucket if one unit is a whole number of ticks: its grains are ticks.
const fn plain(quota: &Quota) -> Option<&Bucket> {
    match quota {
        Quota::Bucket(bucket) if bucket.grains_per_tick() == 1 => Some(bucket),
        _ => None,
    }
}

/// Encodes for the general script, for a server whose clock is expected to show `now`.
fn encode_general(batch: &Batch, now: Timestamp) -> Vec<u8> {
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
                checks.iter().for_each(|check| write_check(&mut out, batch, check));
            }
            Item::Change { key, adjustment, marker } => {
                if let Some(marker) = marker {
                    out.number(7);
                    out.number(batch.marker_at(*marker) as u64 + 1);
                    out.number(marker_lifetime(batch, *key, *adjustment).as_millis_ceil());
                }
                write_change(&mut out, batch, *key, *adjustment);
            }
        }
    }
    out.finish()
}

fn write_quota(out: &mut Writer, quota: &Quota, now: Timestamp) {
    match quota {
        Quota::Bucket(bucket) => {
            let (ticks, grains) = in_ticks(bucket, bucket.grains());
            let (den, unit) = (bucket.grains_per_tick().into(), bucket.grains_per_unit());
            let (deepest_t, deepest_g) = max_debt(bucket);
            let (horizon_t, horizon_g) = in_ticks(bucket, bucket.horizon());
            let horizon_units =
                u64::try_from(bucket.horizon() / u128::from(unit)).unwrap_or(MAX_UNITS).min(MAX_UNITS);
            let numbers = [1, den, unit, ticks, grains, bucket.capacity(), epoch(bucket, ticks)];
            let is_queue = u64::from(bucket.queue().is_some());
            let bounds = [deepest_t, deepest_g, horizon_t, horizon_g, horizon_units, is_queue];
            out.counted(&[&numbers[..], &bounds].concat());
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

/// The start and the end of the current page, and the end of the next page.
fn pages(calendar: &Calendar, now: Timestamp) -> [u64; 3] {
    let (start, end) = calendar.around(now);
    let (_, next) = calendar.around(end);
    [start, end, next].map(Timestamp::as_micros)
}

fn write_check(out: &mut Writer, batch: &Batch, check: &CheckRequest) {
    let quota = batch.quota(check.key);
    let slots = matches!(quota, Quota::Concurrency(_));
    let looks = slots && matches!(check.amount, Amount::Exactly(0) | Amount::UpTo(0));
    let up_to = matches!(check.amount, Amount::UpTo(_));
    let leases = matches!(check.amount, Amount::Lease(_)) && !slots;
    out.number(check.key as u64 + 1);
    // A request for a slot of a rule without slots is refused and charges nothing.
    let counts = check.count_denied && !matches!(check.amount, Amount::Slot(_) | Amount::Lease(_));
    let manner = [(check.binding, 1), (counts, 2), (up_to && !slots, 4), (looks, 8), (leases, 16)];
    out.number(manner.iter().map(|&(is, value)| if is { value } else { 0 }).sum());
    match check.amount {
        Amount::Slot(owner) if slots => out.owner(owner.0),
        // One more than the capacity can never be met.
        Amount::Slot(_) => write_units(out, quota, quota.capacity() + 1),
        Amount::Lease(lease) => {
            write_units(out, quota, u64::from(lease.units).min(quota.capacity()));
            if leases {
                out.number(pad(lease));
            }
        }
        Amount::Exactly(units) | Amount::UpTo(units) => {
            // One more than the capacity means "never", except for a tally, which counts it.
            let tally = matches!(quota, Quota::FixedWindow(it) if it.is_tally());
            write_units(out, quota, units.min(if tally { MAX_UNITS } else { quota.capacity() + 1 }));
        }
    }
}

/// Returns how long the marker of an adjustment is kept: as long as a repetition could change
/// anything, and at most [`ADJUSTMENT_ID_LIFETIME`]. Units are forgotten after at most two periods,
/// except for a grant, which returns the newest units, and for slots that are released without an owner.
fn marker_lifetime(batch: &Batch, key: usize, adjustment: Adjustment) -> Span {
    if let Adjustment::Grant { .. } | Adjustment::ReleaseOldest { .. } = adjustment {
        return ADJUSTMENT_ID_LIFETIME;
    }
    let key = &batch.keys[key];
    let periods = key.before.iter().chain([&key.rule]).map(|&rule| batch.rules[rule].1.period());
    let longest = periods.max().unwrap_or(ADJUSTMENT_ID_LIFETIME).min(ADJUSTMENT_ID_LIFETIME);
    (longest + longest + MARKER_MARGIN).min(ADJUSTMENT_ID_LIFETIME)
}

fn write_change(out: &mut Writer, batch: &Batch, key: usize, adjustment: Adjustment) {
    let quota = batch.quota(key);
    let has_slots = matches!(quota, Quota::Concurrency(_));
    let (what, units) = match adjustment {
        Adjustment::Refund { units, .. } => (1, units),
        // The script frees the oldest slots of a key with slots, and grants units of other keys.
        Adjustment::Grant { units } => (2, if has_slots { 0 } else { units }),
        Adjustment::ReleaseOldest { slots } => (2, if has_slots { slots } else { 0 }),
        Adjustment::Charge { units, overdraft: Overdraft::None } => (3, units),
        Adjustment::Charge { units, overdraft: Overdraft::OneCapacity | Overdraft::Unlimited } => (4, units),
        Adjustment::Reset => (5, 0),
        Adjustment::Release { .. } => (6, 0),
        // 7 is the marker of a change that is made once.
        Adjustment::Renew { .. } => (8, 0),
        Adjustment::ReturnLease { units, .. } => (9, units.into()),
    };
    out.number(what);
    out.number(key as u64 + 1);
    match adjustment {
        Adjustment::Reset => return,
        Adjustment::Release { owner } | Adjustment::Renew { owner } => return out.owner(owner.0),
        Adjustment::Refund { charge, .. } => {
            out.number(time(charge.at));
            out.number(time(charge.until));
        }
        Adjustment::ReturnLease { taken_at, ttl, .. } => {
            out.number(time(taken_at));
            out.number(time(taken_at + ttl));
        }
        Adjustment::Grant { .. } | Adjustment::ReleaseOldest { .. } | Adjustment::Charge { .. } => {}
    }
    write_units(
        out,
        quota,
        if let Quota::Bucket(it) = quota { units.min(it.max_adjustment()) } else { units.min(MAX_UNITS) },
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

/// The price of units of a bucket, in ticks and grains.
fn price(bucket: &Bucket, units: u64) -> (u64, u64) {
    in_ticks(bucket, u128::from(units) * u128::from(bucket.grains_per_unit()))
}

/// The maximum debt of a bucket, in ticks and grains.
fn max_debt(bucket: &Bucket) -> (u64, u64) {
    in_ticks(bucket, bucket.max_debt())
}

fn in_ticks(bucket: &Bucket, grains: u128) -> (u64, u64) {
    let per_tick = u128::from(bucket.grains_per_tick());
    let fits = |number: u128| u64::try_from(number).unwrap_or(MAX_UNITS);
    (fits(grains / per_tick), fits(grains % per_tick))
}

/// Writes an array whose length is known only at the end.
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

    /// Writes the count of numbers, then the numbers.
    fn counted(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        for &number in numbers {
            self.number(number);
        }
    }

    /// Writes an owner as 32 hexadecimal digits, which people can search for.
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
