//! A model of the token bucket: `tokens = min(B, tokens + r·(t - last))`; allow iff `tokens >= n`.

use tollgate_core::{Algorithm as _, Bucket, ChargeTimes, Outcome, Overdraft, Span, Timestamp, Verdict};

use super::{Exact, Model, admitted, span, ticks, whole};

pub(crate) struct TokenBucket {
    burst: Exact,
    per_tick: Exact,
    period: i128,
    count: i128,
    tokens: Exact,
    last: i128,
}

impl TokenBucket {
    pub(super) fn new(bucket: &Bucket) -> Self {
        let (count, period) = (i128::from(bucket.rate().count), i128::from(bucket.rate().period.as_micros()));
        let burst = Exact::from_integer(bucket.capacity().into());
        Self { burst, per_tick: Exact::new(count, period), period, count, tokens: burst, last: 0 }
    }

    /// Refills to `now`. A clock that steps back removes the earned tokens, down to a debt of one
    /// whole burst.
    fn refill(&mut self, now: i128) -> Exact {
        let earned = self.per_tick * Exact::from_integer(now - self.last);
        let tokens = (self.tokens + earned).min(self.burst);
        if tokens < -self.burst {
            self.write(-self.burst, now);
        }
        tokens.max(-self.burst)
    }

    fn write(&mut self, tokens: Exact, now: i128) {
        (self.tokens, self.last) = (tokens, now);
    }

    fn wait_for(&self, missing: Exact) -> i128 {
        (missing / self.per_tick).ceil().to_integer()
    }

    fn answer(&self, verdict: Verdict, tokens: Exact) -> Outcome {
        Outcome {
            verdict,
            limit: whole(self.burst.to_integer()),
            remaining: whole(tokens.floor().to_integer().max(0)),
            reset_after: span(self.wait_for(self.burst - tokens)),
        }
    }
}

impl Model for TokenBucket {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome {
        let (now, cost) = (ticks(now), Exact::from_integer(units.into()));
        let tokens = self.refill(now);
        if cost > self.burst {
            return self.answer(Verdict::Never, tokens);
        }
        if units == 0 {
            return self.answer(admitted(0), tokens);
        }
        if cost > tokens {
            let retry_after = span(self.wait_for(cost - tokens));
            return self.answer(Verdict::Refused { retry_after }, tokens);
        }
        self.write(tokens - cost, now);
        self.answer(admitted(units), tokens - cost)
    }

    /// Debts are repaid in order. Right after a step the bucket lacks at most `burst`, so at most
    /// `burst` minus the refill since then can still be missing, and nothing after the end of the
    /// charge.
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp) {
        let now = ticks(now);
        let tokens = self.refill(now);
        let since = Exact::new((now - ticks(charge.at)).max(0) * self.count, self.period);
        let still_missing = (self.burst - since).max(Exact::from_integer(0));
        let to_come = Exact::new((ticks(charge.until) - now).max(0) * self.count, self.period);
        let back = Exact::from_integer(units.into()).min(still_missing).min(to_come);
        self.write((tokens + back).min(self.burst), now);
    }

    fn grant(&mut self, units: u64, now: Timestamp) {
        let now = ticks(now);
        let tokens = self.refill(now) + Exact::from_integer(units.into());
        self.write(tokens.min(self.burst), now);
    }

    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp) {
        let now = ticks(now);
        let tokens = self.refill(now);
        let floor = match overdraft {
            Overdraft::None => Exact::from_integer(0),
            Overdraft::OneCapacity | Overdraft::Unlimited => -self.burst,
        };
        let after = tokens - Exact::from_integer(units.into());
        self.write(after.max(floor.min(tokens)), now);
    }

    /// The lease counts as if it were spent when two of its lives have passed: what flows in until
    /// then is not available to it.
    fn lease(&mut self, units: u64, ttl: Span, now: Timestamp) -> Outcome {
        let now = ticks(now);
        let tokens = self.refill(now);
        let flows_in = self.per_tick * Exact::from_integer(2 * i128::from(ttl.as_micros()));
        let padded = tokens.min(self.burst - flows_in);
        let units = whole(padded.floor().to_integer().clamp(0, units.into()));
        if units == 0 {
            return self.answer(admitted(0), tokens);
        }
        let left = padded - Exact::from_integer(units.into());
        self.write(left, now);
        self.answer(admitted(units), left)
    }

    fn return_lease(&mut self, units: u64, taken_at: Timestamp, ttl: Span, now: Timestamp) {
        let age = ticks(now) - ticks(taken_at);
        self.refill(ticks(now));
        if (0..=i128::from(ttl.as_micros())).contains(&age) {
            self.grant(units, now);
        }
    }

    fn used(&mut self, now: Timestamp) -> u64 {
        let missing = self.burst - self.refill(ticks(now));
        whole(missing.ceil().to_integer())
    }
}
