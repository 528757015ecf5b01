//! The numbers of a limit as a proxy can apply them: whole tokens per whole seconds.

use tollgate::policy::OnOutage;
use tollgate::{Limit, Mode, Quota};

use crate::wire::{Strategy, TokenBucket};

/// A limit has at least this many tokens per fill interval, if the interval permits it, so that
/// rounding loses at most a thousandth.
const MIN_TOKENS: u128 = 1_000;
/// The longest fill interval, in seconds.
const MAX_FILL_SECONDS: u64 = 86_400;
const MICROS: u128 = 1_000_000;

/// The terms of a limit on a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The name of the limit.
    pub(crate) limit: Box<str>,
    pub(crate) mode: Mode,
    pub(crate) on_outage: OnOutage,
    /// The tokens of all proxies together per fill interval, rounded down.
    pub(crate) tokens: u64,
    pub(crate) fill_seconds: u64,
    /// The burst of all proxies together.
    pub(crate) burst: u64,
}

impl Terms {
    /// Returns the terms of a limit; `None` if it is not a limit on buckets.
    pub(crate) fn of(limit: &Limit) -> Option<Self> {
        limit.bucket_pattern()?;
        let Quota::Bucket(bucket) = &limit.rules().first()?.quota else { return None };
        let rate = bucket.rate();
        let period = u128::from(rate.period.as_micros()).max(1);
        let tokens_in = |seconds: u64| u128::from(rate.count) * u128::from(seconds) * MICROS / period;
        // The shortest interval of these with enough tokens.
        let fill_seconds = [1, 10, 60, 600, 3_600, MAX_FILL_SECONDS]
            .into_iter()
            .find(|seconds| tokens_in(*seconds) >= MIN_TOKENS)
            .unwrap_or(MAX_FILL_SECONDS);
        // A limit that is a whole number per second is exact in one second.
        let fill_seconds = if tokens_in(1) >= 100 { 1 } else { fill_seconds };
        let tokens = tokens_in(fill_seconds).min(u128::from(u32::MAX));
        Some(Self {
            limit: limit.name().into(),
            mode: limit.mode(),
            on_outage: limit.on_outage(),
            tokens: u64::try_from(tokens).unwrap_or(u64::MAX),
            fill_seconds,
            burst: limit.rules().first()?.quota.capacity(),
        })
    }

    /// Returns the strategy for this many tokens per fill interval. `version` distinguishes
    /// assignments that differ only in the interval, which Envoy would take for the same.
    pub(crate) fn strategy(&self, tokens: u64, version: bool) -> Strategy {
        // Zero tokens would divide zero by zero in Envoy.
        let Ok(tokens_per_fill @ 1..) = u32::try_from(tokens) else { return Strategy::DenyAll };
        Strategy::TokenBucket(TokenBucket {
            max_tokens: self.max_tokens(tokens),
            tokens_per_fill,
            fill_seconds: self.fill_seconds,
            fill_nanos: u32::from(version),
        })
    }

    /// Returns the burst of a proxy: its part of the burst of the limit, as a power of two, at least
    /// one. Envoy scales the tokens of a bucket when its size changes, so a size that follows each
    /// change of the share would be a source of tokens.
    fn max_tokens(&self, tokens: u64) -> u32 {
        let part = u128::from(self.burst) * u128::from(tokens) / u128::from(self.tokens.max(1));
        let part = u32::try_from(part).unwrap_or(u32::MAX).max(1);
        1 << part.ilog2()
    }

    /// Returns a rate per fill interval as requests per second.
    pub(crate) fn per_second(&self, tokens: u64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a number to show")]
        let (tokens, seconds) = (tokens as f64, self.fill_seconds as f64);
        tokens / seconds
    }
}
