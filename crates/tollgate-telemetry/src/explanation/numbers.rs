//! Formats numbers and times for explanations.
//!
//! Rounding keeps a sentence true: remaining amounts are rounded down, missing amounts and waits are
//! rounded up. The numbers of one sentence add up, and a caller that waits as long as stated has waited
//! long enough. A missing amount has enough decimals to agree with the wait shown beside it.
//!
//! Times of day are in UTC and say so.

use tollgate::{Bucket, Outcome, Span, Timestamp};

/// The maximum number of decimals.
const MAX_DECIMALS: u32 = 6;
const MILLION: i128 = 1_000_000;

/// Tokens of a bucket in millionths, rounded down. Negative if the bucket is overdrawn.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    millionths: i128,
    /// The number of decimals to show.
    places: u32,
}

impl Tokens {
    /// Returns the tokens in a bucket before `taken` was subtracted. The result is exact, because it is
    /// derived from the time until the bucket is full, which is the state of a bucket.
    pub(super) fn of(bucket: &Bucket, outcome: &Outcome, taken: u64) -> Self {
        let (unit, tick) = (i128::from(bucket.grains_per_unit()), i128::from(bucket.grains_per_tick()));
        let full = i128::from(outcome.limit) * unit;
        let owed = i128::from(outcome.reset_after.as_micros()) * tick;
        let held = ((full - owed) * MILLION).div_euclid(unit.max(1));
        // The time is rounded up to a microsecond. That microsecond may be worth several tokens, or
        // may be the whole apparent debt; the number of whole tokens is exact.
        let is_overdrawn = owed - full > tick - 1;
        let whole = i128::from(outcome.remaining) * MILLION;
        let held = if is_overdrawn { held } else { held.clamp(whole, whole + MILLION - 1) };
        let held = (held + i128::from(taken) * MILLION).min(i128::from(outcome.limit) * MILLION);
        Self { millionths: held, places: 1 }
    }

    /// Chooses enough decimals that the amount missing from `cost` agrees with `wait`, to the last
    /// digit shown.
    pub(super) fn against(self, cost: u64, bucket: &Bucket, wait: Span) -> Self {
        let (unit, tick) = (i128::from(bucket.grains_per_unit()), i128::from(bucket.grains_per_tick()));
        let missing = |tokens: i128| i128::from(cost) * MILLION - tokens;
        let exact = missing(self.millionths);
        let (shown, step) = (wait.human().as_micros(), wait.human().step_micros());
        let fair = |places: &u32| {
            let missing = missing(self.cut(*places));
            let time = missing * unit / tick.max(1) / MILLION;
            missing - exact <= exact / 50 && (time - i128::from(shown)).abs() <= i128::from(step)
        };
        Self { places: (1..MAX_DECIMALS).find(fair).unwrap_or(MAX_DECIMALS), ..self }
    }

    pub(super) const fn is_overdrawn(self) -> bool {
        self.millionths < 0
    }

    fn cut(self, places: u32) -> i128 {
        let step = 10_i128.pow(MAX_DECIMALS - places.min(MAX_DECIMALS));
        self.millionths.div_euclid(step) * step
    }

    /// Formats the amount; for an overdrawn bucket, the debt, rounded up.
    pub(super) fn shown(self) -> String {
        decimal(self.cut(self.places).abs())
    }

    /// Formats the amount missing from `cost`, rounded up.
    pub(super) fn missing(self, cost: u64) -> String {
        decimal((i128::from(cost) * MILLION - self.cut(self.places)).max(0))
    }

    /// Formats the amount that is left after `taken`.
    pub(super) fn without(self, taken: u64) -> String {
        let rest = Self { millionths: self.millionths - i128::from(taken) * MILLION, ..self };
        rest.shown()
    }

    /// Whether the amount is shown as exactly one.
    pub(super) fn is_one(self) -> bool {
        self.cut(self.places).abs() == MILLION
    }
}

/// Formats millionths without trailing zeros.
fn decimal(millionths: i128) -> String {
    let (whole, rest) = (millionths / MILLION, millionths % MILLION);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:06}");
    text.trim_end_matches('0').to_owned()
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Formats a duration, rounded up to the precision shown: `3.6 s`, `2 min 5 s`, `3 d 4 h`.
pub(super) fn span(span: Span) -> String {
    span.human().to_string()
}

/// Formats a duration without rounding: `90 s`, `4 h 48 min`.
pub(super) fn exactly(span: Span) -> String {
    span.human_exact().to_string()
}

/// Formats the period of a rate, to follow a number: `a minute`, `in 90 s`.
pub(super) fn per(period: Span) -> String {
    match period.as_micros() {
        SECOND => "a second".to_owned(),
        MINUTE => "a minute".to_owned(),
        HOUR => "an hour".to_owned(),
        DAY => "a day".to_owned(),
        _ => format!("in {}", exactly(period)),
    }
}

/// Formats a period, to follow `each` or `any`: `minute`, `stretch of 90 s`.
pub(super) fn stretch(period: Span) -> String {
    match period.as_micros() {
        SECOND => "second".to_owned(),
        MINUTE => "minute".to_owned(),
        HOUR => "hour".to_owned(),
        DAY => "day".to_owned(),
        _ => format!("stretch of {}", exactly(period)),
    }
}

/// Formats the time of day with tenths of a second, rounded down: `12:00:03.2 UTC`.
pub(super) fn clock(at: Timestamp) -> String {
    let tenths = at.as_micros() / (SECOND / 10) % 864_000;
    let (seconds, tenth) = (tenths / 10, tenths % 10);
    format!("{:02}:{:02}:{:02}.{tenth} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Formats a future time, rounded up, with its date unless it is today.
pub(super) fn moment(then: Timestamp, now: Timestamp) -> String {
    let tenth = SECOND / 10;
    past_time(Timestamp::from_micros(then.as_micros().div_ceil(tenth).saturating_mul(tenth)), now)
}

/// Formats a past time, rounded down, with its date unless it is today.
pub(super) fn past_time(then: Timestamp, now: Timestamp) -> String {
    if then.as_micros() / DAY == now.as_micros() / DAY {
        return clock(then);
    }
    match dated(then) {
        Some(date) => format!("{} on {}", clock(then), date.strftime("%Y-%m-%d")),
        None => clock(then),
    }
}

/// Formats a future time in a time zone, rounded to the second: `2024-12-01 00:00:00`.
pub(super) fn local(then: Timestamp, zone: &str) -> Option<String> {
    let then = Timestamp::from_secs(then.as_micros().div_ceil(SECOND));
    let there = dated(then)?.in_tz(zone).ok()?;
    Some(there.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

fn dated(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(i64::try_from(at.as_micros()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_above_an_hour_read_in_hours() {
        let period = Span::from_secs(288 * 60);
        assert_eq!(per(period), "in 4 h 48 min");
        assert_eq!(stretch(period), "stretch of 4 h 48 min");
        assert_eq!(per(Span::from_secs(90)), "in 90 s");
    }

    #[test]
    fn times_of_day_are_in_utc_with_tenths() {
        assert_eq!(clock(Timestamp::from_micros(43_203_299_999)), "12:00:03.2 UTC");
        assert_eq!(clock(Timestamp::from_micros(1_731_690_000_000_000)), "17:00:00.0 UTC");
        let now = Timestamp::from_secs(1_731_690_000);
        assert_eq!(moment(now + Span::from_micros(1), now), "17:00:00.1 UTC");
        assert_eq!(moment(now + Span::from_days(1), now), "17:00:00.0 UTC on 2024-11-16");
        assert_eq!(local(now, "Asia/Kolkata").as_deref(), Some("2024-11-15 22:30:00"));
        assert_eq!(local(now, "Nowhere"), None);
        assert_eq!(moment(Timestamp::from_micros(u64::MAX), now).len(), 14);
    }
}
