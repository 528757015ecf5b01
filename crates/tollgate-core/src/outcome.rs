//! The answer of one limit about one key.
//!
//! A refusal is an answer, not an error, and an answer is never a `bool`: it has the remaining
//! units, the time until more come back, and whether waiting helps.
//!
//! The answer of several limits together is `tollgate::Decision`; formatting for a protocol is in
//! `tollgate_http`.

use crate::time::Span;

/// The answer of one limit about one key.
///
/// ```
/// # use tollgate_core::{Bucket, Algorithm, Rate, Span, Timestamp, Verdict};
/// let limit = Bucket::new(Rate::per_minute(2))?;
/// let (mut state, now) = (limit.fresh(), Timestamp::from_secs(1_000));
/// assert_eq!(limit.step(&mut state, 1, now).remaining, 1);
/// let last = limit.step(&mut state, 2, now);
/// assert_eq!(last.verdict, Verdict::Refused { retry_after: Span::from_secs(30) });
/// assert_eq!(last.remaining, 1);                   // a refusal takes nothing
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the request is admitted.
    pub verdict: Verdict,
    /// The number of units that a rested key may spend in one step.
    pub limit: u64,
    /// The number of units that the key may still spend at this instant, rounded down.
    pub remaining: u64,
    /// The time until the key is equivalent to a fresh one, rounded up.
    pub reset_after: Span,
}

/// Whether a request is admitted, refused for now, or can never be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may proceed.
    Admitted {
        /// The charged units. Less than requested only for [`Amount::UpTo`](crate::Amount::UpTo)
        /// and [`Amount::Lease`](crate::Amount::Lease).
        units: u64,
        /// The time that the request waits in the queue of the limit before it starts, rounded up.
        /// Zero unless the limit has a queue.
        wait: Span,
        /// Whether a node admitted the request from units that it had leased, without asking the
        /// store.
        leased: bool,
    },
    /// The request is refused for now.
    Refused {
        /// The shortest wait after which the same request passes if no other request spends.
        /// Rounded up.
        retry_after: Span,
    },
    /// The request costs more than a rested key may spend. Waiting does not help.
    Never,
}

impl Outcome {
    /// Returns whether the request may proceed.
    pub const fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// Returns the wait after which a refused request can pass, or `None` if it was admitted or
    /// waiting does not help.
    pub const fn retry_after(&self) -> Option<Span> {
        match self.verdict {
            Verdict::Refused { retry_after } => Some(retry_after),
            Verdict::Admitted { .. } | Verdict::Never => None,
        }
    }

    /// Returns the time that an admitted request waits in the queue of the limit before it starts.
    /// Zero for a refusal, and for a limit without a queue.
    pub const fn wait(&self) -> Span {
        match self.verdict {
            Verdict::Admitted { wait, .. } => wait,
            Verdict::Refused { .. } | Verdict::Never => Span::ZERO,
        }
    }

    /// Returns whether a node admitted the request from units that it had leased, without asking the
    /// store.
    pub const fn is_leased(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted { leased: true, .. })
    }

    /// Returns the charged units: zero for a refusal.
    pub const fn units(&self) -> u64 {
        match self.verdict {
            Verdict::Admitted { units, .. } => units,
            Verdict::Refused { .. } | Verdict::Never => 0,
        }
    }
}

impl Verdict {
    /// Returns whether the request may proceed.
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted { .. })
    }

    /// Creates an admission of `units` without a wait.
    pub const fn admitted(units: u64) -> Self {
        Self::Admitted { units, wait: Span::ZERO, leased: false }
    }

    /// Creates an admission of `units` that a node had leased.
    pub const fn admitted_from_lease(units: u64) -> Self {
        Self::Admitted { units, wait: Span::ZERO, leased: true }
    }
}
