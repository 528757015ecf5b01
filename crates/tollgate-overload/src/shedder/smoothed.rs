//! A moving average of a measured signal.

use std::time::Duration;

/// The time between two measurements after which the new one counts for half.
const HALF_LIFE: Duration = Duration::from_millis(300);
/// The longest time between two measurements that makes a difference.
const MAX_STEP: Duration = Duration::from_secs(60);

/// A moving average of a measured signal, so that one odd measurement sheds no request.
///
/// The first value is taken as it is.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate_overload::shedder::Smoothed;
/// let mut signal = Smoothed::default();
/// assert_eq!(signal.update(Duration::ZERO, 100), 100);
/// assert_eq!(signal.update(Duration::from_millis(300), 200), 150);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Smoothed(Option<(Duration, u64)>);

impl Smoothed {
    /// Adds a measurement and returns the average.
    pub fn update(&mut self, now: Duration, value: u64) -> u64 {
        let average = self.0.map_or(value, |(at, average)| {
            let elapsed = now.saturating_sub(at).min(MAX_STEP).as_micros();
            let (whole, before) = (elapsed + HALF_LIFE.as_micros(), HALF_LIFE.as_micros());
            let sum = u128::from(value) * elapsed + u128::from(average) * before;
            // Rounds toward the new value: rounded the other way, the average would never reach it.
            let average = if value > average { sum.div_ceil(whole) } else { sum / whole };
            u64::try_from(average).unwrap_or(u64::MAX)
        });
        self.0 = Some((now, average));
        average
    }
}
