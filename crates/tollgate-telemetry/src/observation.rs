//! A decision with the values that several tables need.

use smallvec::SmallVec;
use tollgate::{Decision, Event, LimitOutcome, Outcome, Subject};

use crate::describe::method_of;
use crate::pending_spends::OwnPlaces;
use crate::spenders::{Asker, Spenders};

/// The hash of the allowance of each limit of a decision.
pub(crate) type KeyHashes = SmallVec<[u64; 8]>;

/// A decision with the values that several tables need.
#[derive(Clone, Copy)]
pub(crate) struct Observation<'e, 'd, 'l> {
    pub(crate) event: &'e Event<'d, 'l>,
    /// The redacted path; empty if there is no request.
    pub(crate) path: &'e str,
    /// The places of pending units of this thread, if it owns any.
    pub(crate) own: Option<OwnPlaces<'e>>,
}

/// Returns the limit of an outcome of a decision. A function that few requests need gets the outcome: a reference to a
/// `LimitOutcome` would put that into memory for all requests.
pub(crate) fn limit_of<'d>(decision: &'d Decision<'_>, outcome: &Outcome) -> Option<LimitOutcome<'d>> {
    decision.limits().find(|it| std::ptr::eq(it.outcome(), outcome))
}

/// The caller of a decision.
#[derive(Clone, Copy, Default)]
pub(crate) struct Caller {
    /// The hash of the caller ([`Spenders::caller`]).
    pub(crate) hash: u64,
    /// Whether the caller may report the final cost later.
    pub(crate) may_be_settled: bool,
}

impl Observation<'_, '_, '_> {
    /// Returns the caller as the table of spenders shows it.
    #[inline(always)]
    pub(crate) fn asker(&self) -> Asker<'_> {
        let subject = self.event.subject;
        let (client, method) = (subject.and_then(Subject::client), subject.map_or("", method_of));
        Asker { client, method, path: self.path }
    }

    /// Returns the caller.
    #[inline(always)]
    pub(crate) fn caller(&self, spenders: &Spenders) -> Caller {
        match &self.event.subject {
            Some(Subject::Request(request)) => {
                let asker = Asker { client: request.client(), method: request.method(), path: self.path };
                Caller { hash: spenders.caller(&asker), may_be_settled: request.may_be_settled() }
            }
            subject => Caller {
                hash: spenders.caller(&self.asker()),
                // A proxy that sends descriptors reports no final cost.
                may_be_settled: subject.is_none(),
            },
        }
    }
}
