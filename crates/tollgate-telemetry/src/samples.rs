//! Selects the admitted requests that are recorded.
//!
//! These are a few requests in each second; requests whose caller records a trace; requests that a
//! limit in shadow mode would have refused; and one in `trace_one_in` for traces. Each kind has its own
//! bound, so that no kind and no caller can displace the others.

use tollgate::{DecisionId, Subject, Timestamp};

use crate::describe::trace_of;
use crate::sampler::RateSampler;

/// The maximum number of samples of each kind in a second.
const SAMPLES_PER_SECOND: u64 = 20;
const TRACED_PER_SECOND: u64 = 200;
const SHADOWED_PER_SECOND: u64 = 100;

/// Selects the admitted requests that are recorded.
pub(crate) struct Samples {
    some: RateSampler,
    traced: RateSampler,
    shadowed: RateSampler,
    trace_one_in: u64,
}

impl Samples {
    pub(crate) fn new(trace_one_in: u32) -> Self {
        Self {
            some: RateSampler::per_second(SAMPLES_PER_SECOND),
            traced: RateSampler::per_second(TRACED_PER_SECOND),
            shadowed: RateSampler::per_second(SHADOWED_PER_SECOND),
            trace_one_in: trace_one_in.into(),
        }
    }

    /// Whether to record this request. Ids are uniformly distributed.
    #[inline]
    pub(crate) fn choose(
        &self,
        id: DecisionId,
        subject: Option<Subject<'_>>,
        is_shadowed: bool,
        at: Timestamp,
    ) -> bool {
        if is_shadowed && self.shadowed.take(at) {
            return true;
        }
        if self.traced.has_room(at) && self.is_traced(id, subject) && self.traced.take(at) {
            return true;
        }
        self.some.has_room(at) && self.some.take(at)
    }

    #[inline]
    fn is_traced(&self, id: DecisionId, subject: Option<Subject<'_>>) -> bool {
        id.0.checked_rem(self.trace_one_in) == Some(0)
            || subject.and_then(trace_of).is_some_and(|trace| trace.sampled)
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Input as _};

    use super::*;

    #[test]
    fn each_kind_has_its_own_bound() {
        let samples = Samples::new(2);
        let (plain, at) = (Call::new("GET", "/"), Timestamp::from_secs(1_000));
        let sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = Call::new("GET", "/").header("traceparent", sampled);
        let chosen = |id: u64, request: &Call<'_>, shadowed| {
            let chosen = |_: &u32| samples.choose(DecisionId(id), Some(request.subject()), shadowed, at);
            (0..1_000).filter(chosen).count()
        };
        assert_eq!(chosen(1, &plain, false), 20, "odd ids are not sampled for traces");
        assert_eq!(chosen(1, &traced, false), 200);
        assert_eq!(chosen(2, &plain, false), 0, "the bound of this second is used up");
        assert_eq!(chosen(2, &plain, true), 100);
    }
}
