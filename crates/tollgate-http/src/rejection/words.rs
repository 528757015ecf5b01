//! The reason of a refusal as a sentence.
//!
//! The sentences contain limits, numbers and kinds of keys from the policy, and no data that a
//! caller sent.
//!
//! Strings are appended instead of formatted, because every refusal of a flood needs one.

use std::cell::RefCell;
use std::fmt::Write as _;

use tollgate::policy::{Block, BlockReason};
use tollgate::{LimitOutcome, NotHeld, PriorityClass, Quota, Rate, Span, Verdict, Window};

use crate::headers::RetryAfter;

/// The initial capacity in bytes; most sentences are shorter.
const INITIAL_BYTES: usize = 128;

pub(super) fn quota(limit: &LimitOutcome<'_>, retry_after: Option<RetryAfter>) -> String {
    let mut words = String::with_capacity(INITIAL_BYTES);
    // Constants are appended one by one: their copies are no calls.
    words.push_str("limit `");
    words.push_str(limit.name());
    words.push_str("` allows ");
    push_promise(&limit.rule().quota, &mut words);
    match (limit.outcome().verdict, retry_after) {
        (Verdict::Never, _) => {
            words.push_str(", and this request asks for ");
            number(limit.cost(), &mut words);
            words.push_str(" at once: it can never pass, and waiting does not help");
        }
        (_, Some(wait)) => {
            words.push_str("; try again in ");
            push_wait(wait, &mut words);
        }
        (_, None) => {}
    }
    words
}

/// Describes the refusal of a request that would have to wait for a limit, and finds no place in the waiting room.
pub(super) fn full_room(
    limit: Option<&LimitOutcome<'_>>,
    reason: Option<NotHeld>,
    retry_after: RetryAfter,
) -> String {
    let mut words = String::with_capacity(INITIAL_BYTES);
    words.push_str("the waiting room of this server is full");
    if reason == Some(NotHeld::Displaced) {
        words.push_str(", and a more important request took the place of this one");
    }
    if let Some(limit) = limit {
        let place = match limit.rule().quota {
            Quota::Concurrency(_) => "for a slot of",
            _ => "in the queue of",
        };
        words.extend(["; it would have had to wait ", place, " limit `", limit.name(), "`"]);
    }
    words.push_str("; try again in ");
    push_wait(retry_after, &mut words);
    words
}

/// Describes the refusal of a shedder. The numbers of the shedder are for operators.
pub(super) fn shed(class: Option<&PriorityClass>, retry_after: RetryAfter) -> String {
    let mut words = String::with_capacity(INITIAL_BYTES);
    words.push_str("the service is overloaded and refuses ");
    match class {
        Some(class) => words.extend(["requests of priority `", class.name(), "`"]),
        None => words.push_str("some requests"),
    }
    words.push_str("; try again in ");
    push_wait(retry_after, &mut words);
    words
}

pub(super) fn block(block: Block<'_>) -> String {
    let name = block.limit.name();
    match block.reason {
        BlockReason::Override => format!("limit `{name}` is closed to this caller"),
        BlockReason::Plan => format!("limit `{name}` is closed to the plan of this caller"),
        BlockReason::MissingKey => {
            let parts: Vec<_> = block.limit.by().iter().map(|part| format!("`{part}`")).collect();
            format!("limit `{name}` counts by {}, which this request does not have", parts.join(" and "))
        }
        BlockReason::Ambiguous => {
            let parts: Vec<_> = block.limit.by().iter().map(|part| format!("`{part}`")).collect();
            let parts = parts.join(" and ");
            format!(
                "this request gives several different values for {parts}, by which limit `{name}` counts, or \
                 for its plan; send one value"
            )
        }
        _ => format!("limit `{name}` is closed to this request"),
    }
}

/// A wait in words.
struct WordedWait {
    seconds: u64,
    words: String,
}

thread_local! {
    /// The last wait. Most refusals of a flood have the same one, in whole seconds.
    static LAST_WAIT: RefCell<WordedWait> = const { RefCell::new(WordedWait { seconds: 0, words: String::new() }) };
}

/// Appends a wait in whole seconds, as in `Retry-After`.
fn push_wait(wait: RetryAfter, words: &mut String) {
    let seconds = wait.seconds();
    LAST_WAIT.with_borrow_mut(|last| {
        if last.seconds != seconds || last.words.is_empty() {
            last.words.clear();
            Span::from_secs(seconds).human().push_to(&mut last.words);
            last.seconds = seconds;
        }
        words.push_str(&last.words);
    });
}

/// Describes a quota in words: `10 per minute, 20 at once`.
pub fn promise(quota: &Quota) -> String {
    let mut words = String::with_capacity(INITIAL_BYTES);
    push_promise(quota, &mut words);
    words
}

fn push_promise(quota: &Quota, words: &mut String) {
    match quota {
        Quota::Bucket(it) => {
            per(it.rate(), words);
            if let Some(queue) = it.queue() {
                words.push_str(", and a queue of ");
                number(queue.length, words);
            } else if quota.capacity() != it.rate().count {
                words.push_str(", ");
                number(quota.capacity(), words);
                words.push_str(" at once");
            }
        }
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) | Window::Anchored(length) => {
                per(Rate::new(quota.capacity(), *length), words);
            }
            Window::Calendar(calendar) => {
                number(quota.capacity(), words);
                words.extend([" per ", &calendar.to_string()]);
            }
        },
        Quota::SlidingWindow(it) => per(it.rate(), words),
        Quota::SlidingParts(it) => per(it.rate(), words),
        Quota::SlidingLog(it) => per(it.rate(), words),
        Quota::Concurrency(it) => {
            number(it.slots().into(), words);
            words.push_str(" at once");
        }
    }
}

/// Appends a rate: `10 per minute`, `10 per 15 minutes`, `1 per 4 h 48 min`.
fn per(rate: Rate, words: &mut String) {
    const HOUR: u64 = 3_600_000_000;
    const UNITS: [(u64, &str); 5] = [
        (24 * HOUR, "day"),
        (HOUR, "hour"),
        (60_000_000, "minute"),
        (1_000_000, "second"),
        (1_000, "millisecond"),
    ];
    number(rate.count, words);
    words.push_str(" per ");
    let micros = rate.period.as_micros();
    let whole = UNITS.iter().find(|(size, _)| micros.is_multiple_of(*size));
    let (count, unit) = whole.map_or((micros, "microsecond"), |(size, unit)| (micros / size, *unit));
    if micros > HOUR && !micros.is_multiple_of(HOUR) {
        // Writing to memory does not fail.
        let _never = write!(words, "{}", rate.period.human_exact());
    } else if count == 1 {
        words.push_str(unit);
    } else {
        number(count, words);
        words.extend([" ", unit, "s"]);
    }
}

fn number(number: u64, words: &mut String) {
    words.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::{Limiter, Policy};

    use super::*;

    #[track_caller]
    fn check(limit: &str, expected: &str) {
        let policy = Policy::parse(&format!("limits: [{{by: ip, {limit}}}]")).unwrap();
        let limiter = Limiter::new(policy);
        let rule = &limiter.policy().limits()[0].rules()[0];
        assert_eq!(promise(&rule.quota), expected, "{limit}");
    }

    #[test]
    fn a_wait_is_described_in_whole_seconds() {
        for seconds in [1, 1, 90, 1, 86_400, 86_400, 100_000] {
            let mut words = String::from("in ");
            push_wait(RetryAfter::with_jitter(Duration::from_secs(seconds), 0, 0), &mut words);
            assert_eq!(words, format!("in {}", Span::from_secs(seconds).human()));
        }
    }

    #[test]
    fn every_algorithm_is_described() {
        check("bucket: 10/minute", "10 per minute");
        check("bucket: '1000/minute, burst 200'", "1000 per minute, 200 at once");
        check("algorithm: gcra, rate: 5/2s", "5 per 2 seconds, 1 at once");
        check("algorithm: fixed-window, rate: 100/15m", "100 per 15 minutes");
        check("algorithm: fixed-window, rate: 10/day, align: first-request", "10 per day");
        check(
            "algorithm: fixed-window, rate: 9/month, align: calendar, timezone: Europe/Paris",
            "9 per month in Europe/Paris",
        );
        check("algorithm: sliding-window, rate: 600/hour", "600 per hour");
        check("algorithm: sliding-window, rate: 600/36h", "600 per 36 hours");
        check("algorithm: sliding-window, rate: 600/288m", "600 per 4 h 48 min");
        check("algorithm: sliding-log, rate: 5/250ms", "5 per 250 milliseconds");
        check("slots: 20", "20 at once");
    }
}
