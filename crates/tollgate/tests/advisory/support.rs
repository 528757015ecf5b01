//! Limiters on a manual clock, random limits and random requests.

use std::ops::Deref;

use tollgate::store::{Answer, Check};
use tollgate::{
    Adjustment, Call, Limiter, ManualClock, MemoryStore, Outcome, Policy, Rule, Span, Store, StoreError,
    Timestamp,
};

pub(crate) const START: Timestamp = Timestamp::from_secs(1_772_366_400);

pub(crate) fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

pub(crate) fn memory(clock: &ManualClock) -> MemoryStore<ManualClock> {
    MemoryStore::with_seed(1_000, clock.clone(), 7)
}

pub(crate) fn limiter(text: &str, clock: &ManualClock) -> Limiter<MemoryStore<ManualClock>> {
    Limiter::with_store(policy(text), memory(clock))
}

/// A store that is never ready immediately.
pub(crate) struct Remote(pub(crate) MemoryStore<ManualClock>);

impl Deref for Remote {
    type Target = MemoryStore<ManualClock>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        Ok(self.0.decide_now(checks))
    }

    async fn adjust(&self, rule: &Rule, key: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.0.adjust_now(rule, key, adjustment))
    }
}

/// Returns a random quota in the notation of the policy file: any algorithm that counts units.
pub(crate) fn amount(rng: &mut fastrand::Rng) -> String {
    let mut rate = || format!("{}/{}s", rng.u8(1..12), rng.u8(1..30));
    match (rate(), rate(), rng.u8(..9)) {
        (a, _, 0 | 1) => format!("bucket: {a}"),
        (a, _, 2) => format!("bucket: \"{a}, burst {}\"", rng.u8(1..20)),
        (a, _, 3) => format!("rate: {a}, algorithm: gcra"),
        (a, _, 4) => format!("rate: {a}, algorithm: fixed-window"),
        (a, _, 5) => format!("rate: {a}, algorithm: fixed-window, align: first-request"),
        (a, _, 6) => format!("rate: {a}, algorithm: sliding-window, parts: {}", rng.u8(1..5)),
        (a, _, 7) => format!("rate: {a}, algorithm: sliding-log"),
        (a, b, _) => {
            let algorithm =
                ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"][rng.usize(..5)];
            // Two windows of one length are an error.
            format!("windows: [{a}, {}/{}m], algorithm: {algorithm}", rng.u8(5..60), b.len())
        }
    }
}

pub(crate) fn whether(word: &str, chance: bool) -> String {
    format!(", {word}: {chance}")
}

/// Returns a request of one of three callers, with a small or a large cost.
pub(crate) fn call(rng: &mut fastrand::Rng) -> Call<'static> {
    let call = Call::new("GET", "/").ip([203, 0, 113, 9]).user(["ann", "bob", "eve"][rng.usize(..3)]);
    match rng.u8(..4) {
        0 => call.cost(rng.u64(1..14)),
        _ => call,
    }
}

/// Leaves the clock, advances it a little, or advances it far.
pub(crate) fn pass(clock: &ManualClock, rng: &mut fastrand::Rng) {
    clock.advance(Span::from_micros(match rng.u8(..8) {
        0..3 => 0,
        3..7 => rng.u64(..3_000_000),
        _ => rng.u64(..60_000_000),
    }));
}
