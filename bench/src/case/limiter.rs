//! `Limiter::check` for a request, and the store's part of it alone.
//!
//! The request is the same each time and its allowance is ample or spent, so all data is in the L1 cache. This is the
//! strictest form of the claim that a limiter costs a given number of store checks. A second variant has a watcher
//! that counts and records.

use std::fmt::Write as _;
use std::hint::black_box;

use tollgate::{Call, Limiter};
use tollgate_core::Rule;
use tollgate_store::{Check, MemoryStore};
use tollgate_telemetry::{WatchSettings, Watcher};

use crate::contest::{self, Contestant, Expected, Run};
use crate::stream::{Stream as _, Text};
use crate::subject::{Offer, rule};

/// Number of limits in the policy.
const LIMITS: usize = 1_000;
pub(super) const PATH: &str = "/api/v1/resource-500/items";
pub(super) const CLIENT: [u8; 4] = [203, 0, 113, 9];

/// Returns a policy of a thousand limits on different endpoints, of which `matching` match `PATH`. A spent offer
/// admits one request to each endpoint.
pub(super) fn policy(matching: usize, offer: Offer) -> String {
    let mut text = String::from("limits:\n");
    let more = ["{endpoint: /api/**, by: ip", "{endpoint: /api/v1/**, by: global"];
    let allowance = r#"bucket: "15/minute, burst 30000000"}"#;
    for limit in &more[..matching.saturating_sub(1).min(more.len())] {
        let _ = writeln!(text, "  - {limit}, {allowance}");
    }
    let allowance = if offer == Offer::Spent { "bucket: 1/day}" } else { allowance };
    for number in matching.saturating_sub(1)..LIMITS {
        let _ = writeln!(text, "  - {{endpoint: /api/v1/resource-{number}/items, by: api_key, {allowance}");
    }
    text
}

/// Runs `Limiter::check`.
pub(super) struct Whole {
    limiter: Limiter,
    keys: Text,
    matching: usize,
    offer: Offer,
}

impl Whole {
    pub(super) fn new(matching: usize, offer: Offer, watched: bool) -> Self {
        let mut limiter = Limiter::from_policy(&policy(matching, offer)).expect("the policy above is sound");
        if watched {
            limiter = limiter.with_observer(Watcher::new(&WatchSettings::default()));
        }
        Self { limiter, keys: Text::one(), matching, offer }
    }
}

impl Contestant for Whole {
    fn run(&mut self, _: usize, checks: usize) -> Run {
        let call = Call::new("GET", PATH).ip(CLIENT).api_key(self.keys.key(0));
        assert_eq!(self.limiter.check(&call).limits().len(), self.matching, "of the limits apply");
        contest::alone(0..checks, |_| black_box(&self.limiter.check(black_box(&call))).is_allowed().into())
    }

    fn expected(&self) -> Expected {
        if self.offer == Offer::Spent { Expected::None } else { Expected::All }
    }
}

/// Runs `MemoryStore::decide_now`.
pub(super) struct Bare {
    store: MemoryStore,
    rules: Vec<Rule>,
    keys: Text,
}

impl Bare {
    pub(super) fn new(checks: usize) -> Self {
        let rules =
            (0..checks).map(|number| Rule { id: tollgate_core::RuleId(number as u64), ..rule(Offer::Ample) });
        // The default capacity of a limiter's store.
        Self { store: MemoryStore::new(1_000_000), rules: rules.collect(), keys: Text::one() }
    }
}

impl Contestant for Bare {
    fn run(&mut self, _: usize, checks: usize) -> Run {
        let key = self.keys.key(0).as_bytes();
        let batch: Vec<Check<'_>> = self.rules.iter().map(|rule| Check::new(rule, key, 1)).collect();
        contest::alone(0..checks, |_| black_box(&self.store.decide_now(black_box(&batch))).admitted.into())
    }

    fn expected(&self) -> Expected {
        Expected::All
    }
}
