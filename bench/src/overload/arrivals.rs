//! The arrivals of requests: three classes, each at random instants (Poisson), with a fixed seed.

use std::time::Duration;

use serde::Serialize;

use super::{WORKERS, capacity};
use crate::zipf::Rng;

/// A priority class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The most important class. Its own load is always below the capacity.
    Critical,
    /// The class in the middle.
    Normal,
    /// The least important class.
    Bulk,
}

impl Class {
    /// All classes, the most important first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Normal, Self::Bulk];

    /// Returns the name, which is that of the class in the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Normal => "normal",
            Self::Bulk => "bulk",
        }
    }

    /// Returns the path of its requests, by which a proxy knows the class.
    pub fn path(self) -> &'static str {
        match self {
            Self::Critical => "/critical",
            Self::Normal => "/normal",
            Self::Bulk => "/bulk",
        }
    }

    /// Returns its share of all requests. At four times the capacity, critical requests are 0.7 of the capacity,
    /// normal ones 1.3 and bulk 2.0.
    fn share(self) -> f64 {
        match self {
            Self::Critical => 0.175,
            Self::Normal => 0.325,
            Self::Bulk => 0.5,
        }
    }
}

/// An arrival: its time since the start of the phase, and its class.
pub type Arrival = (Duration, Class);

/// Returns the arrivals of a phase in their order. The load is a multiple of the capacity of all workers.
pub fn arrivals(rng: &mut Rng, load: f64, phase: Duration) -> Vec<Arrival> {
    let rate = load * capacity(WORKERS);
    let mut all = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_secs_f64(rng.exponential() / rate);
        if at >= phase {
            return all;
        }
        let mut fraction = rng.fraction();
        let class = Class::ALL.into_iter().find(|class| {
            fraction -= class.share();
            fraction < 0.0
        });
        all.push((at, class.unwrap_or(Class::Bulk)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    fn arrivals_have_their_rate_and_their_classes() {
        let arrivals = arrivals(&mut Rng::new(), 4.0, Duration::from_secs(10));
        let offered = arrivals.len() as f64 / 10.0 / capacity(WORKERS);
        assert!((offered - 4.0).abs() < 0.1, "{offered}");
        assert!(arrivals.is_sorted_by_key(|it| it.0));
        for class in Class::ALL {
            let count = arrivals.iter().filter(|it| it.1 == class).count() as f64;
            assert!((count / arrivals.len() as f64 - class.share()).abs() < 0.02, "{class:?}: {count}");
        }
    }
}
