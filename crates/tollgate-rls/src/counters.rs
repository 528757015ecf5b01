//! Counters of calls, for `/metrics`.
//!
//! They count calls by protocol, and invalid calls. Decisions by limit are counted by the observer
//! of the limiter.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::Counter;

use tollgate_grpc::call::Code;

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    Envoy,
    Throttlecrab,
    Json,
    Authorization,
    Kuadrant,
}

const SURFACES: [&str; 5] = ["envoy", "throttlecrab", "json", "ext_authz", "kuadrant"];
const ANSWERS: [&str; 2] = ["ok", "over_limit"];

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    answers: [[AtomicU64; ANSWERS.len()]; SURFACES.len()],
    errors: [AtomicU64; Code::ALL.len()],
    unconfigured: AtomicU64,
}

impl Counters {
    #[inline]
    pub(crate) fn answered(&self, surface: Surface, over: bool) {
        self.answers[surface as usize][usize::from(over)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn turned_down(&self, code: Code) {
        let counter = Code::ALL.iter().zip(&self.errors).find(|((known, _), _)| *known == code);
        if let Some((_, counter)) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_unconfigured(&self) {
        self.unconfigured.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of answered calls of Envoy, and of calls that failed.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let sum = |counters: &[AtomicU64]| counters.iter().map(|it| it.load(Ordering::Relaxed)).sum::<u64>();
        (sum(&self.answers[Surface::Envoy as usize]), sum(&self.errors))
    }

    pub(crate) fn write(&self, out: &mut String) {
        let mut to = Exposition::new(out);
        let help = "Rate limit requests that were answered, by surface and code.";
        let mut family = to.family("tollgate_rls_answers_total", Counter, help);
        for (surface, answers) in SURFACES.iter().zip(&self.answers) {
            for (answer, count) in ANSWERS.iter().zip(answers) {
                family.value(&[("surface", surface), ("answer", answer)], count.load(Ordering::Relaxed));
            }
        }
        let help = "Calls that failed, by gRPC status code.";
        let mut family = to.family("tollgate_rls_errors_total", Counter, help);
        for ((_, code), count) in Code::ALL.iter().zip(&self.errors) {
            family.value(&[("code", code)], count.load(Ordering::Relaxed));
        }
        let help = "Calls that were answered before the first configuration of a configuration server.";
        let count = self.unconfigured.load(Ordering::Relaxed);
        to.one("tollgate_rls_unconfigured_calls_total", Counter, help, count);
    }
}
