//! Deliberate defects of the simulated parts, which the invariants must detect.

/// A deliberate defect of a simulated part. Each is caught by an invariant within the seeds of `make test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// A node believes that it is alone, and grants the whole share of the fleet during an outage.
    ShareForOneNode,
    /// A call that is executed after its deadline is not undone.
    LateChargeKept,
    /// A request that one shard refused stays charged on the others.
    PartKept,
    /// The store applies a repeated adjustment again.
    IdsForgotten,
    /// The usage of an outage is acknowledged by the store and not charged.
    LedgerDropped,
    /// The store answers no probe and no call after the first outage of a node.
    SilentAfterOutage,
    /// A cached refusal is used for seconds after its wait is over.
    DenyCacheOutlivesWait,
    /// A call waits for its reply beyond the deadline.
    DeadlineIgnored,
    /// The store charges a lease without the refill of two leases, as if it were spent when it is taken.
    LeaseWithoutPad,
    /// The store accepts units of leases that have ended.
    LateReturnsAccepted,
    /// The end of a lease is read from the wall clock of the node.
    LeaseEndOnWallClock,
    /// The end of a lease is not checked when it is spent.
    LeaseEndIgnored,
    /// A region lends units to another region and keeps them: it does not charge them to its share.
    LentTwice,
    /// A node does not use the store of its region while the region is cut off from the others.
    CutRegionGivesUp,
}

impl Defect {
    /// All defects.
    pub const ALL: [Self; 14] = [
        Self::ShareForOneNode,
        Self::LateChargeKept,
        Self::PartKept,
        Self::IdsForgotten,
        Self::LedgerDropped,
        Self::SilentAfterOutage,
        Self::DenyCacheOutlivesWait,
        Self::DeadlineIgnored,
        Self::LeaseWithoutPad,
        Self::LateReturnsAccepted,
        Self::LeaseEndOnWallClock,
        Self::LeaseEndIgnored,
        Self::LentTwice,
        Self::CutRegionGivesUp,
    ];
}
