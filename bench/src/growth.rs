//! Benchmarks how the cost of a decision grows with the number of keys, limits and connections.
//!
//! - [`keys`]: the in-memory store, from ten thousand to a hundred million keys.
//! - [`limits`]: `Limiter::check`, with more limits in the policy and with more limits for one request.
//! - [`connections`]: `tollgate serve` under load, from one to ten thousand connections.
//! - [`report`]: the table, the JSON, the chart.
//!
//! A case has one row per size, and each row is compared with the smallest size. Times grow where data no longer fits
//! the caches, so instructions are counted as well where the work is done in this process.

pub mod connections;
pub mod keys;
pub mod limits;
mod load;
pub mod report;

use crate::contest::Contestant;
use crate::contest::Expected;

pub use self::report::{GrowthReport, Row};

/// Something that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name in the table.
    pub name: &'static str,
    /// Description in the chart.
    pub title: &'static str,
    /// The things that are counted.
    pub unit: &'static str,
    /// Sizes, ascending.
    pub sizes: &'static [usize],
    /// The largest size for which instructions are counted: callgrind takes fifty times as long to set it up.
    pub max_counted: usize,
}

/// Ten thousand to a hundred million keys, one decision at a time.
pub const KEYS: Case = Case {
    name: "keys",
    title: "keys",
    unit: "keys",
    sizes: &[10_000, 100_000, 1_000_000, 10_000_000, 100_000_000],
    max_counted: 1_000_000,
};
/// The same keys, in batches.
pub const KEYS_BATCH: Case = Case { name: "keys_batch", title: "keys, in batches", ..KEYS };
/// The same keys, one decision at a time, in huge pages.
pub const KEYS_HUGE_PAGES: Case =
    Case { name: "keys_huge_pages", title: "keys, in huge pages", max_counted: 0, ..KEYS };
/// Ten to a hundred thousand limits in a policy: the same endpoint each time.
pub const LIMITS: Case = Case {
    name: "limits",
    title: "limits in the policy, one endpoint",
    unit: "limits",
    sizes: &[10, 100, 1_000, 10_000, 100_000],
    max_counted: 10_000,
};
/// The same policies: every endpoint in turn, at random.
pub const LIMITS_ANY: Case =
    Case { name: "limits_any", title: "limits in the policy, any endpoint", ..LIMITS };
/// One to sixteen limits for a request; a row is the cost of one of them.
pub const LIMITS_MATCHING: Case = Case {
    name: "limits_matching",
    title: "limits for a request, per limit",
    unit: "limits a request",
    sizes: &[1, 2, 4, 8, 16],
    max_counted: 16,
};
/// One to ten thousand connections to the Redis protocol.
pub const CONNECTIONS_RESP: Case = Case {
    name: "connections_resp",
    title: "connections, RESP",
    unit: "connections",
    sizes: &[1, 10, 100, 1_000, 5_000, 10_000],
    max_counted: 0,
};
/// One to ten thousand connections to the gateway, which refuses.
pub const CONNECTIONS_GATEWAY: Case =
    Case { name: "connections_gateway", title: "connections, gateway", ..CONNECTIONS_RESP };

/// All cases, in the order of the table.
pub const ALL: [Case; 8] = [
    KEYS,
    KEYS_BATCH,
    KEYS_HUGE_PAGES,
    LIMITS,
    LIMITS_ANY,
    LIMITS_MATCHING,
    CONNECTIONS_RESP,
    CONNECTIONS_GATEWAY,
];

/// The rounds of a case in this process, of which the fastest counts.
const ROUNDS: usize = 7;
/// Decisions in a round.
const CHECKS: usize = 400_000;

impl Case {
    /// Returns the case of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|case| case.name == name)
    }

    /// Sets up the work of a size. `None`: the work is that of a server.
    pub fn enter(&self, size: usize) -> Option<Box<dyn Contestant>> {
        Some(match self.name {
            "keys" | "keys_huge_pages" => Box::new(keys::Single::new(size)),
            "keys_batch" => Box::new(keys::Batches::new(size)),
            "limits" => Box::new(limits::InPolicy::new(size, limits::Endpoints::One)),
            "limits_any" => Box::new(limits::InPolicy::new(size, limits::Endpoints::Any)),
            "limits_matching" => Box::new(limits::OfRequest::new(size)),
            _ => return None,
        })
    }

    /// Returns the number of measured units of a decision: a row of [`LIMITS_MATCHING`] is the cost of one limit.
    pub fn parts(&self, size: usize) -> usize {
        if *self == LIMITS_MATCHING { size } else { 1 }
    }
}

/// Returns the nanoseconds of a decision in the fastest round.
#[allow(clippy::cast_precision_loss, reason = "counts of decisions are far below 2^52")]
pub fn time(contestant: &mut dyn Contestant) -> Result<f64, String> {
    // Caches are warm after the first round, which does not count.
    let mut fastest = f64::INFINITY;
    for round in 0..=ROUNDS {
        let run = contestant.run(round * CHECKS, CHECKS);
        let wrong = Expected::All.wrong(run.admitted, CHECKS);
        if wrong > 0 {
            return Err(format!("{wrong} of {CHECKS} decisions were refused, although all limits are ample"));
        }
        if round > 0 {
            fastest = fastest.min(run.elapsed.as_secs_f64() * 1e9 / CHECKS as f64);
        }
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_in_this_process_admits_all_requests() {
        for case in ALL {
            let size = case.sizes[0];
            if let Some(mut contestant) = case.enter(size) {
                assert_eq!(contestant.run(0, 1_000).admitted, 1_000, "{}", case.name);
            }
            assert_eq!(Case::named(case.name), Some(&case));
            assert!(case.sizes.is_sorted(), "{}", case.name);
        }
    }
}
