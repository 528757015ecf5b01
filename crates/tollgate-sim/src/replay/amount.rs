//! Formats the numbers of limits as a policy writes them, and replaces them by other numbers.
//!
//! Not here: choosing the other numbers (`candidates`).

use tollgate::{Bucket, FixedWindow, Quota, Rate, SlidingLog, Window};

/// Formats a quota as in a policy: `10/minute, burst 20`.
pub(super) fn written(quota: &Quota) -> String {
    match quota {
        Quota::Bucket(it) if quota.capacity() == it.rate().count || it.queue().is_some() => {
            it.rate().to_string()
        }
        Quota::Bucket(it) => format!("{}, burst {}", it.rate(), quota.capacity()),
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) | Window::Anchored(length) => {
                Rate::new(quota.capacity(), *length).to_string()
            }
            Window::Calendar(calendar) => format!("{}/{}", quota.capacity(), calendar.unit().word()),
        },
        Quota::SlidingWindow(it) => it.rate().to_string(),
        Quota::SlidingParts(it) => it.rate().to_string(),
        Quota::SlidingLog(it) => it.rate().to_string(),
        Quota::Concurrency(it) => it.slots().to_string(),
    }
}

/// Formats the quotas of a limit, one per window: `10/second and 1000/hour`.
pub(super) fn all_written<'q>(quotas: impl IntoIterator<Item = &'q Quota>) -> String {
    quotas.into_iter().map(written).collect::<Vec<_>>().join(" and ")
}

/// Returns the units per period; `None` for slots.
pub(super) fn count(quota: &Quota) -> Option<u64> {
    match quota {
        Quota::Bucket(it) => Some(it.rate().count),
        Quota::Concurrency(_) => None,
        windowed => Some(windowed.capacity()),
    }
}

/// Returns the quota with another count, and for a bucket without a queue with this burst. `None` if such a quota is invalid.
pub(super) fn with_count(quota: &Quota, count: u64, burst: u64) -> Option<Quota> {
    match quota {
        Quota::Bucket(it) => {
            let bucket = Bucket::new(Rate::new(count, it.rate().period)).ok()?;
            let sized = it.queue().map_or_else(|| bucket.with_burst(burst), |queue| bucket.with_queue(queue));
            sized.map(Quota::from).ok()
        }
        Quota::FixedWindow(it) if it.is_tally() => {
            FixedWindow::tally(count, it.window().clone()).map(Quota::from).ok()
        }
        Quota::FixedWindow(it) => FixedWindow::new(count, it.window().clone()).map(Quota::from).ok(),
        Quota::SlidingWindow(it) => Quota::sliding_window(Rate::new(count, it.rate().period), 1).ok(),
        Quota::SlidingParts(it) => it.with_rate(Rate::new(count, it.rate().period)).map(Quota::from).ok(),
        Quota::SlidingLog(it) => SlidingLog::new(Rate::new(count, it.rate().period)).map(Quota::from).ok(),
        Quota::Concurrency(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tollgate::Policy;

    use super::*;

    /// Formatted numbers are parsed as the same numbers.
    #[test]
    fn amounts_are_written_as_policies_write_them() {
        for (word, amount, rest) in [
            ("bucket", "10/minute", ""),
            ("bucket", "1000/minute, burst 200", ""),
            ("rate", "5/2s, burst 1", ", algorithm: gcra"),
            ("rate", "100/15m", ", algorithm: sliding-window, parts: 4"),
            ("rate", "100/15m", ", algorithm: sliding-window, strict: true"),
            ("rate", "100/hour", ", algorithm: sliding-log"),
            ("rate", "100/day", ", algorithm: fixed-window, align: first-request"),
            ("rate", "10000/month", ", algorithm: fixed-window, align: calendar"),
            ("slots", "20", ""),
        ] {
            let limit = format!("limits: [{{name: a, by: ip, {word}: \"{amount}\"{rest}}}]");
            let limit = if word == "slots" { limit.replace('"', "") } else { limit };
            let policy = Policy::parse(&limit).unwrap();
            assert_eq!(written(&policy.limits()[0].rules()[0].quota), amount);
        }
    }
}
