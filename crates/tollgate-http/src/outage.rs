//! What a request gets while the store gives no answer.
//!
//! Each limit says so itself. Here only the hardest of them counts: if one that
//! applies says `deny`, the request is refused, and else it passes unlimited.
//! `local` passes too, until there is a local fallback to ask. Whoever would be
//! refused without counting still is.
//!
//! Not here: breaker, deadlines, local counting, replay (`tollgate::outage`, when
//! it comes, takes this file's place).

use tollgate::policy::{Checks, OnOutage, Survey};
use tollgate::{Fate, Limit, Mode, Policy, Request};

/// What a request gets while nothing can be counted.
pub enum Outage<'p> {
    /// It passes.
    Passes,
    /// These limits would rather refuse than not count.
    Denied(Vec<&'p Limit>),
    /// It needs no counting to be refused.
    Uncounted(Fate<'p>),
}

impl<'p> Outage<'p> {
    /// What the policy says to a request that cannot be counted.
    pub fn of<R: Request + ?Sized>(policy: &'p Policy, request: &R) -> Self {
        let mut checks = Checks::new();
        match policy.survey(request, &mut checks) {
            Survey::Applies => {}
            Survey::Allowed(_) => return Self::Passes,
            Survey::Denied(entry) => return Self::Uncounted(Fate::DenyListed(entry)),
            Survey::Blocked(block) => return Self::Uncounted(Fate::Blocked(block)),
        }
        let mut limits: Vec<&Limit> = checks.iter().map(|check| check.limit).collect();
        limits.retain(|limit| limit.mode() == Mode::Enforce && limit.on_outage() == OnOutage::Deny);
        // Windows of one limit are neighbours.
        limits.dedup_by_key(|limit| limit.name());
        if limits.is_empty() { Self::Passes } else { Self::Denied(limits) }
    }
}
