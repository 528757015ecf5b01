//! The request times of one client, without retries.
//!
//! Times are microseconds since the start. Evenly spaced times are computed from their index, so they do not drift.

use fastrand::Rng;

use super::{By, Shape, Traffic};

/// Length of a burst before and after the end of a window, as a fraction of the window.
const EDGE: f64 = 0.05;
/// A flash crowd: the load before it as a fraction, its start as a fraction of the duration, and the speed of its
/// decay.
const CALM: f64 = 0.25;
const RISES_AT: f64 = 1.0 / 3.0;
const EBB: f64 = 0.125;
/// Windows between two waves of a retry storm.
const WAVE_EVERY: f64 = 4.0;

/// The requests of one client.
pub(super) struct Client {
    shape: Shape,
    /// Mean time between two requests, in microseconds.
    gap: f64,
    /// The window of the rate, and the duration of the traffic.
    window: f64,
    duration: f64,
    /// Start of the client within its cycle, from 0 to 1.
    phase: f64,
    /// Requests per burst.
    burst: u64,
    /// Number of requests so far.
    sent: u64,
    /// Time of the last request, for shapes whose next time depends on it.
    last: f64,
    rng: Rng,
}

impl Client {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "loads are estimates; sizes of bursts are positive and rounded"
    )]
    pub(super) fn new(traffic: &Traffic, number: u32) -> Self {
        let mut rng = Rng::with_seed(mixed(traffic.seed, u64::from(number) + 1));
        let sharers = match traffic.by {
            By::Client => 1.0,
            By::Everybody => f64::from(traffic.clients),
        };
        let window = traffic.rate.period.as_micros() as f64;
        let together = match traffic.shape {
            Shape::RetryStorm => WAVE_EVERY,
            _ => 1.0,
        };
        // The total of all clients that share an allowance, distributed without rounding losses.
        let all = (traffic.load * traffic.rate.count as f64 * together).round().max(1.0) as u64;
        let burst = match traffic.by {
            By::Client => all,
            By::Everybody => {
                let upto =
                    |clients: u32| u128::from(all) * u128::from(clients) / u128::from(traffic.clients.max(1));
                u64::try_from(upto(number + 1) - upto(number)).unwrap_or(u64::MAX)
            }
        };
        Self {
            shape: traffic.shape,
            gap: window * sharers / (traffic.load * traffic.rate.count as f64),
            window,
            duration: traffic.duration.as_micros() as f64,
            phase: rng.f64(),
            burst,
            sent: 0,
            last: 0.0,
            rng,
        }
    }

    /// Returns the next time, in microseconds since the start; `None` after the end.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and the end")]
    pub(super) fn next(&mut self) -> Option<u64> {
        loop {
            let at = match self.shape {
                Shape::Steady => (self.number() + self.phase) * self.gap,
                Shape::Edge => self.in_bursts(|it, burst| {
                    // Two bursts per window end, and one such end in two windows.
                    let border = it.window * (2.0 * (burst / 2.0).floor() + 1.0);
                    let from = if burst % 2.0 < 1.0 { border - EDGE * it.window } else { border };
                    (from, EDGE * it.window)
                })?,
                Shape::OnOff => {
                    let on = self.number() * self.gap / 2.0;
                    let whole = (on / self.window).floor();
                    2.0 * whole * self.window + (on - whole * self.window) - self.phase * 2.0 * self.window
                }
                Shape::Poisson => self.exponential(self.gap),
                Shape::FlashCrowd => self.crowd(),
                Shape::RetryStorm => self.in_bursts(|it, wave| {
                    let spread = (it.window / 100.0).min(100_000.0);
                    (it.window * (0.5 + WAVE_EVERY * wave), spread)
                })?,
                Shape::Ramp => ((self.number() + self.phase) * self.gap * self.duration).sqrt(),
            };
            self.sent += 1;
            if at >= self.duration {
                return None;
            }
            // A cycle may begin before the start.
            if at >= 0.0 {
                return Some(at as u64);
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a client sends fewer than 2^52 requests")]
    const fn number(&self) -> f64 {
        self.sent as f64
    }

    /// Returns the time of a request within a burst, whose start and length `place` returns for its index.
    #[allow(clippy::cast_precision_loss, reason = "as above")]
    fn in_bursts(&mut self, place: impl Fn(&Self, f64) -> (f64, f64)) -> Option<f64> {
        if self.burst == 0 {
            return None;
        }
        let (burst, within) = (self.sent / self.burst, self.sent % self.burst);
        let (from, length) = place(self, burst as f64);
        Some(from + length * (within as f64 + self.rng.f64()) / self.burst as f64)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        self.last -= (1.0 - self.rng.f64()).ln() * mean;
        self.last
    }

    /// Generates a flash crowd by thinning: times are drawn at the peak rate and kept with the probability of their
    /// moment. The height is chosen so that the mean over the duration equals the load.
    fn crowd(&mut self) -> f64 {
        let rise = (1.0 - CALM) / (EBB * (1.0 - (-(1.0 - RISES_AT) / EBB).exp()));
        let most = CALM + rise;
        loop {
            let at = self.exponential(self.gap / most);
            let since = at / self.duration - RISES_AT;
            let now = if since < 0.0 { CALM } else { CALM + rise * (-since / EBB).exp() };
            if at >= self.duration || self.rng.f64() * most < now {
                return at;
            }
        }
    }
}

/// Mixes a seed and an index into a well-distributed number (`SplitMix64`).
pub(super) const fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
