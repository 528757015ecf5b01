//! Numbers and times as sentences show them.
//!
//! Rounding favours the truth of the sentence: what is left is rounded down, what is
//! missing and what is waited for up. So the numbers of one sentence add up, and who
//! waits as long as it says has waited long enough.

use tollgate::{Bucket, Outcome, Span, Timestamp};

/// Decimal places behind the comma, at most.
const THOUSAND: i128 = 1_000;

/// Tokens of a bucket in thousandths, rounded down. Below zero it is overdrawn.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    thousandths: i128,
    /// How many decimal places are shown.
    places: u32,
}

impl Tokens {
    /// What a bucket holds, by how long it takes to fill: exact, since that is what a
    /// bucket remembers. `taken` was in it before.
    pub(super) fn of(bucket: &Bucket, outcome: &Outcome, taken: u64) -> Self {
        let (unit, tick) = (i128::from(bucket.grains_per_unit()), i128::from(bucket.grains_per_tick()));
        let full = i128::from(outcome.limit) * unit;
        let owed = i128::from(outcome.reset_after.as_micros()) * tick;
        let held = ((full - owed) * THOUSAND).div_euclid(unit.max(1));
        // The time is rounded up to a microsecond, which may be worth several tokens, or be
        // all by which it seems overdrawn; the whole tokens are known.
        let is_overdrawn = owed - full > tick - 1;
        let whole = i128::from(outcome.remaining) * THOUSAND;
        let held = if is_overdrawn { held } else { held.clamp(whole, whole + THOUSAND - 1) };
        let held = (held + i128::from(taken) * THOUSAND).min(i128::from(outcome.limit) * THOUSAND);
        Self { thousandths: held, places: 1 }
    }

    /// With as many places as it takes to show what is missing from `cost` fairly.
    pub(super) fn against(self, cost: u64) -> Self {
        let missing = |tokens: i128| i128::from(cost) * THOUSAND - tokens;
        let exact = missing(self.thousandths);
        let fair = |places: &u32| missing(self.cut(*places)) - exact <= exact / 50;
        Self { places: (1..3).find(fair).unwrap_or(3), ..self }
    }

    pub(super) const fn is_overdrawn(self) -> bool {
        self.thousandths < 0
    }

    fn cut(self, places: u32) -> i128 {
        let step = 10_i128.pow(3 - places.min(3));
        self.thousandths.div_euclid(step) * step
    }

    /// How much there is; where it is overdrawn, by how much, rounded up.
    pub(super) fn shown(self) -> String {
        decimal(self.cut(self.places).abs())
    }

    /// How much is missing from `cost`, rounded up.
    pub(super) fn missing(self, cost: u64) -> String {
        decimal((i128::from(cost) * THOUSAND - self.cut(self.places)).max(0))
    }

    /// How much there is after `taken`.
    pub(super) fn without(self, taken: u64) -> String {
        let rest = Self { thousandths: self.thousandths - i128::from(taken) * THOUSAND, ..self };
        rest.shown()
    }

    /// Whether it reads as exactly one.
    pub(super) fn is_one(self) -> bool {
        self.cut(self.places).abs() == THOUSAND
    }
}

/// Thousandths without zeros at the end.
fn decimal(thousandths: i128) -> String {
    let (whole, rest) = (thousandths / THOUSAND, thousandths % THOUSAND);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').to_owned()
}

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How long, rounded up to what is shown: `3.6 s`, `2 min 5 s`, `3 d 4 h`.
pub(super) fn span(span: Span) -> String {
    let micros = span.as_micros();
    let up = |step: u64| micros.div_ceil(step).saturating_mul(step);
    let two = |all: u64, large: (u64, &str), small: (u64, &str)| {
        let (first, rest) = (all / large.0, all % large.0 / small.0);
        let first = format!("{first} {}", large.1);
        if rest == 0 { first } else { format!("{first} {rest} {}", small.1) }
    };
    if up(MILLI) < SECOND {
        format!("{} ms", up(MILLI) / MILLI)
    } else if up(SECOND / 10) < MINUTE {
        let tenths = up(SECOND / 10) / (SECOND / 10);
        format!("{} s", decimal(i128::from(tenths) * 100))
    } else if up(SECOND) < HOUR {
        two(up(SECOND), (MINUTE, "min"), (SECOND, "s"))
    } else if up(MINUTE) < DAY {
        two(up(MINUTE), (HOUR, "h"), (MINUTE, "min"))
    } else {
        two(up(HOUR), (DAY, "d"), (HOUR, "h"))
    }
}

/// How long, in the largest unit that keeps it whole: `90 s`, `250 ms`.
pub(super) fn exactly(span: Span) -> String {
    let micros = span.as_micros();
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (MILLI, "ms")];
    match units.into_iter().find(|(size, _)| micros.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{} {unit}", micros / size),
        None => format!("{micros} µs"),
    }
}

/// The period of a rate, behind a number: `a minute`, `in 90 s`.
pub(super) fn per(period: Span) -> String {
    match period.as_micros() {
        SECOND => "a second".to_owned(),
        MINUTE => "a minute".to_owned(),
        HOUR => "an hour".to_owned(),
        DAY => "a day".to_owned(),
        _ => format!("in {}", exactly(period)),
    }
}

/// A stretch by its name, behind `each` or `any`: `minute`, `stretch of 90 s`.
pub(super) fn stretch(period: Span) -> String {
    match period.as_micros() {
        SECOND => "second".to_owned(),
        MINUTE => "minute".to_owned(),
        HOUR => "hour".to_owned(),
        DAY => "day".to_owned(),
        _ => format!("stretch of {}", exactly(period)),
    }
}

/// The time of day in UTC with tenths of a second, rounded down.
pub(super) fn clock(at: Timestamp) -> String {
    let tenths = at.as_micros() / (SECOND / 10) % 864_000;
    let (seconds, tenth) = (tenths / 10, tenths % 10);
    format!("{:02}:{:02}:{:02}.{tenth}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A time to come, rounded up: with its date where that is not today's.
pub(super) fn moment(then: Timestamp, now: Timestamp) -> String {
    let tenth = SECOND / 10;
    let then = Timestamp::from_micros(then.as_micros().div_ceil(tenth).saturating_mul(tenth));
    if then.as_micros() / DAY == now.as_micros() / DAY {
        return clock(then);
    }
    let micros = i64::try_from(then.as_micros()).ok();
    match micros.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok()) {
        Some(date) => format!("{} on {}", clock(then), date.strftime("%Y-%m-%d")),
        None => clock(then),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_to_what_is_shown() {
        for (micros, text) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (250_000, "250 ms"),
            (999_001, "1 s"),
            (3_600_000, "3.6 s"),
            (3_600_001, "3.7 s"),
            (59_900_001, "1 min"),
            (125_000_000, "2 min 5 s"),
            (3_599_000_001, "1 h"),
            (11_520_000_000, "3 h 12 min"),
            (273_600_000_000, "3 d 4 h"),
            (86_399_000_000, "1 d"),
        ] {
            assert_eq!(span(Span::from_micros(micros)), text, "{micros}");
        }
    }

    #[test]
    fn times_of_day_are_in_utc_with_tenths() {
        assert_eq!(clock(Timestamp::from_micros(43_203_299_999)), "12:00:03.2");
        assert_eq!(clock(Timestamp::from_micros(1_731_690_000_000_000)), "17:00:00.0");
        let now = Timestamp::from_secs(1_731_690_000);
        assert_eq!(moment(now + Span::from_micros(1), now), "17:00:00.1");
        assert_eq!(moment(now + Span::from_days(1), now), "17:00:00.0 on 2024-11-16");
        assert_eq!(moment(Timestamp::from_micros(u64::MAX), now).len(), 10);
    }
}
