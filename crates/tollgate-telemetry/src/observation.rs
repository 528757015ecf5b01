//! A decision with the values that several tables need.

use smallvec::SmallVec;
use tollgate::{Event, Request, Subject};

use crate::describe::method_of;
use crate::spenders::{Asker, Spenders};

/// The hash of the allowance of each limit of a decision.
pub(crate) type KeyHashes = SmallVec<[u64; 8]>;

/// A decision with the values that several tables need.
pub(crate) struct Observation<'e, 'd, 'l> {
    pub(crate) event: &'e Event<'d, 'l>,
    /// The redacted path; empty if there is no request.
    pub(crate) path: &'e str,
    /// The caller, once a table needs it.
    caller: Option<Caller<'e>>,
}

/// The caller of a decision.
pub(crate) struct Caller<'a> {
    pub(crate) asker: Asker<'a>,
    /// The hash of the asker ([`Spenders::caller`]).
    pub(crate) hash: u64,
    /// Whether the caller may report the final cost later.
    pub(crate) may_be_settled: bool,
}

impl<'e, 'd, 'l> Observation<'e, 'd, 'l> {
    #[inline]
    pub(crate) const fn new(event: &'e Event<'d, 'l>, path: &'e str) -> Self {
        Self { event, path, caller: None }
    }

    /// Returns the caller.
    #[inline]
    pub(crate) fn caller(&mut self, spenders: &Spenders) -> &Caller<'e> {
        let (subject, path): (Option<Subject<'e>>, _) = (self.event.subject, self.path);
        self.caller.get_or_insert_with(|| {
            let (client, method) = (subject.and_then(Subject::client), subject.map_or("", method_of));
            let asker = Asker { client, method, path };
            Caller {
                hash: spenders.caller(&asker),
                asker,
                // A proxy that sends descriptors reports no final cost.
                may_be_settled: subject.is_none_or(|it| it.request().is_some_and(Request::may_be_settled)),
            }
        })
    }
}
