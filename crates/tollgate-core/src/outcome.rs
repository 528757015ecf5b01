//! What one limit answers about one key.
//!
//! A refusal is an answer, not an error, and an answer is never a `bool`: it
//! says how much is left, when more comes back, and whether waiting helps.
//!
//! Not here: the answer of several limits together (`tollgate::Decision`), and
//! wording it for a protocol (`tollgate_http`).

use crate::time::Span;

/// What one limit answers about one key.
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
    /// Yes, not now, or not ever.
    pub verdict: Verdict,
    /// How many units a rested key may spend at once.
    pub limit: u64,
    /// How many units the key may still spend at this instant, rounded down.
    pub remaining: u64,
    /// How long until the key is as good as never seen, rounded up.
    pub reset_after: Span,
}

/// Yes, not now, or not ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go ahead.
    Admitted {
        /// What was charged. Less than asked only for [`Amount::UpTo`](crate::Amount::UpTo).
        units: u64,
        /// How long to hold the request before it starts. Zero unless the limit queues.
        delay: Span,
    },
    /// Not now.
    Refused {
        /// After this long, and no sooner, the same request passes if nobody else spends. Rounded up.
        retry_after: Span,
    },
    /// Not ever: the request costs more than a rested key may spend. Waiting does not help.
    Never,
}

impl Outcome {
    /// Whether the request may go ahead.
    pub const fn is_admitted(&self) -> bool {
        self.verdict.is_admitted()
    }

    /// How long to wait, where waiting helps.
    pub const fn retry_after(&self) -> Option<Span> {
        match self.verdict {
            Verdict::Refused { retry_after } => Some(retry_after),
            Verdict::Admitted { .. } | Verdict::Never => None,
        }
    }

    /// What was charged: zero for a refusal.
    pub const fn units(&self) -> u64 {
        match self.verdict {
            Verdict::Admitted { units, .. } => units,
            Verdict::Refused { .. } | Verdict::Never => 0,
        }
    }
}

impl Verdict {
    /// Whether the request may go ahead.
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admitted { .. })
    }

    /// Admitted at once.
    pub const fn admitted(units: u64) -> Self {
        Self::Admitted { units, delay: Span::ZERO }
    }
}
