//! `CL.THROTTLE`, `THROTTLE` and `GCRA`: the same operation in three dialects.
//!
//! Each follows its original in the meaning of the arguments, the order of the reply, the rounding
//! of times and the error messages. `docs/resp.md` compares them.

use std::time::Duration;

use tollgate::throttle::{Throttle, ThrottleReply};

use crate::command::Command;
use crate::frame::{Words, integer};
use crate::reply;

/// The dialect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// redis-cell.
    Cell,
    /// throttlecrab.
    Crab,
    /// Redis.
    Gcra,
}

/// The operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThrottleAction {
    /// Spend this many units; zero only peeks.
    Units(u64),
    /// Refund this many units.
    Back(u64),
}

/// The quota and the operation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottleRequest {
    pub(crate) throttle: Throttle,
    pub(crate) wanted: ThrottleAction,
}

/// A complete error reply in the dialect.
pub(crate) type Mistake = Vec<u8>;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

impl Dialect {
    /// Returns the dialect of a throttle command.
    #[inline]
    pub(crate) const fn of(command: Command) -> Option<Self> {
        match command {
            Command::ClThrottle => Some(Self::Cell),
            Command::Throttle => Some(Self::Crab),
            Command::Gcra => Some(Self::Gcra),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn read(self, words: Words<'_>) -> Result<ThrottleRequest, Mistake> {
        match self {
            Self::Cell => read_cell(words),
            Self::Crab => read_crab(words),
            Self::Gcra => read_gcra(words),
        }
    }

    /// Creates the error for numbers that cannot be served.
    pub(crate) fn refuse(self, why: &str) -> Mistake {
        match self {
            Self::Cell => format!("Cell error: {why}").into_bytes(),
            Self::Crab | Self::Gcra => format!("ERR {why}").into_bytes(),
        }
    }

    #[inline]
    pub(crate) fn write(self, throttled: &ThrottleReply, out: &mut Vec<u8>) {
        let ThrottleReply { allowed, limit, remaining, retry_after, short_by, reset_after, .. } = *throttled;
        out.extend_from_slice(b"*5\r\n");
        let (first, fourth, fifth) = match self {
            Self::Cell => (!allowed, retry_after.map_or(-1, in_cell), in_cell(reset_after)),
            Self::Crab => (allowed, truncated(reset_after), truncated(short_by)),
            Self::Gcra => (!allowed, retry_after.map_or(-1, rounded_up), rounded_up(reset_after)),
        };
        reply::integer(out, i64::from(first));
        reply::count(out, limit);
        reply::count(out, remaining);
        reply::integer(out, fourth);
        reply::integer(out, fifth);
    }
}

/// Seconds as in redis-cell: rounded up from whole milliseconds.
fn in_cell(time: Duration) -> i64 {
    signed(time.as_secs() + u64::from(time.subsec_millis() > 0))
}

fn truncated(time: Duration) -> i64 {
    signed(time.as_secs())
}

fn rounded_up(time: Duration) -> i64 {
    signed(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn read_cell(words: Words<'_>) -> Result<ThrottleRequest, Mistake> {
    if !matches!(words.len(), 5 | 6) {
        return Err(Dialect::Cell
            .refuse("Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"));
    }
    let number = |index: usize| {
        parsed(words.get(index)).ok_or_else(|| {
            let mut mistake = b"Cell error: Couldn't parse as integer: ".to_vec();
            mistake.extend(words.get(index).iter().take(128));
            mistake
        })
    };
    let (burst, count, period) = (number(2)?, number(3)?, number(4)?);
    let quantity = if words.len() == 6 { number(5)? } else { 1 };
    if count == 0 || period == 0 {
        return Err(Dialect::Cell.refuse("Zero rates are not supported"));
    }
    let wanted = match u64::try_from(quantity) {
        Ok(units) => ThrottleAction::Units(units),
        Err(_) => ThrottleAction::Back(quantity.unsigned_abs()),
    };
    let numbers = (u64::try_from(burst), u64::try_from(count), u64::try_from(period));
    let (Ok(burst), Ok(count), Ok(period)) = numbers else {
        return Err(Dialect::Cell.refuse("Negative bursts and rates are not supported"));
    };
    let throttle = Throttle { capacity: burst + 1, count, period: Duration::from_secs(period) };
    Ok(ThrottleRequest { throttle, wanted })
}

fn read_crab(words: Words<'_>) -> Result<ThrottleRequest, Mistake> {
    if words.len() > 6 {
        return Err(b"ERR wrong number of arguments for 'throttle' command".to_vec());
    }
    let number = |index: usize, name: &str| {
        parsed(words.get(index)).ok_or_else(|| Dialect::Crab.refuse(&format!("invalid {name}")))
    };
    let burst = number(2, "max_burst")?;
    let count = number(3, "count_per_period")?;
    let period = number(4, "period")?;
    let quantity = if words.len() == 6 { number(5, "quantity")? } else { 1 };
    let Ok(units) = u64::try_from(quantity) else {
        return Err(Dialect::Crab.refuse(&format!("Rate limit check failed: negative quantity: {quantity}")));
    };
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let (Some(capacity), Some(count), Some(period)) = (positive(burst), positive(count), positive(period))
    else {
        return Err(Dialect::Crab.refuse("Rate limit check failed: invalid rate limit parameters"));
    };
    let throttle = Throttle { capacity, count, period: Duration::from_secs(period) };
    Ok(ThrottleRequest { throttle, wanted: ThrottleAction::Units(units) })
}

fn read_gcra(words: Words<'_>) -> Result<ThrottleRequest, Mistake> {
    if words.len() > 7 {
        return Err(b"ERR wrong number of arguments for 'gcra' command".to_vec());
    }
    let number = |index: usize| integer(words.get(index)).ok_or_else(|| NOT_AN_INTEGER.as_bytes().to_vec());
    let Ok(burst) = u64::try_from(number(2)?) else {
        return Err(b"ERR value is out of range, must be positive".to_vec());
    };
    let range = |number: i64, least: u64| {
        u64::try_from(number).ok().filter(|number| *number >= least).ok_or_else(|| {
            format!("ERR value is out of range, value must between {least} and {}", i64::MAX).into_bytes()
        })
    };
    let count = range(number(3)?, 1)?;
    let period = std::str::from_utf8(words.get(4)).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(period) = period.filter(|period| !period.is_nan()) else {
        return Err(b"ERR value is not a valid float".to_vec());
    };
    if period <= 0.0 || period >= 1e12 {
        return Err(b"ERR period must be > 0 and < 1e12".to_vec());
    }
    let units = match words.len() {
        5 => 1,
        _ if !words.is(5, "tokens") && !words.is(5, "num_requests") => {
            return Err(b"ERR syntax error".to_vec());
        }
        6 => {
            return Err(format!(
                "ERR Missing {} value",
                if words.is(5, "tokens") { "TOKENS" } else { "NUM_REQUESTS" }
            )
            .into_bytes());
        }
        _ => range(number(6)?, 0)?,
    };
    let period = Duration::try_from_secs_f64(period).unwrap_or(Duration::MAX);
    let throttle = Throttle { capacity: burst + 1, count, period };
    Ok(ThrottleRequest { throttle, wanted: ThrottleAction::Units(units) })
}

/// Parses an integer as Rust does, like the originals: a plus sign and leading zeros are permitted.
#[inline]
fn parsed(word: &[u8]) -> Option<i64> {
    integer(word).or_else(|| std::str::from_utf8(word).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_own_rounding() {
        for (micros, cell, crab, gcra) in [
            (0, 0, 0, 0),
            (1, 0, 0, 1),
            (999, 0, 0, 1),
            (1_000, 1, 0, 1),
            (900_000, 1, 0, 1),
            (1_000_000, 1, 1, 1),
            (1_000_999, 1, 1, 2),
            (1_001_000, 2, 1, 2),
        ] {
            let time = Duration::from_micros(micros);
            assert_eq!((in_cell(time), truncated(time), rounded_up(time)), (cell, crab, gcra), "{micros}");
        }
    }
}
