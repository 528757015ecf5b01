//! The keys that this node owns, and the calls of other nodes for them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Rule, Timestamp};
use tollgate_store::parts::{OwnedCheck, PartReply};
use tollgate_store::{AdjustmentId, Check, Clock, MemoryStore};

use crate::applied::AppliedIds;
use crate::peer::{Counts, Dial};
use crate::settings::PeerSettings;
use crate::table::{Owner, Table};
use crate::wire::{Call, KeyChange, Reply, VERSION};

/// The state of this node.
pub(crate) struct Node<C> {
    pub(crate) settings: PeerSettings,
    pub(crate) memory: MemoryStore<C>,
    pub(crate) dial: Arc<Dial>,
    pub(crate) table: ArcSwap<Table>,
    applied: AppliedIds,
}

impl<C: Clock> Node<C> {
    pub(crate) fn new(settings: PeerSettings, memory: MemoryStore<C>, dial: Arc<Dial>) -> Self {
        let table = ArcSwap::from_pointee(Table::new(Vec::new(), None));
        Self { settings, memory, dial, table, applied: AppliedIds::default() }
    }

    /// Answers the call of another node, or returns an error for it.
    pub(crate) fn serve(&self, version: &[u8], payload: &[u8]) -> Result<Vec<u8>, String> {
        if version != VERSION.to_string().as_bytes() {
            return Err(format!(
                "PEERVERSION this node speaks version {VERSION} of the calls between peers, and the caller another: \
                 run the same version of Tollgate on all nodes"
            ));
        }
        let (call, not_after) = Call::decode(payload).map_err(|error| format!("ERR {error}"))?;
        Counts::add(&self.dial.counts.served);
        Ok(self.execute(call, not_after).encode())
    }

    fn execute(&self, call: Call, not_after: Timestamp) -> Reply {
        let now = self.memory.now();
        if now > not_after {
            return Reply::Late;
        }
        let table = self.table.load();
        let is_owner = |key: &[u8]| table.owner(key) == Owner::Here;
        match call {
            Call::Ping => Reply::Pong(now),
            Call::Decide(checks) if checks.iter().all(|check| is_owner(&check.key)) => {
                let checks: SmallVec<[Check<'_>; 4]> = checks.iter().map(OwnedCheck::check).collect();
                let PartReply { answer, renewed } = self.decide(&checks);
                Reply::Decided(answer, renewed)
            }
            Call::Adjust(change) if is_owner(&change.key) => {
                let KeyChange { rule, key, adjustment, id } = &*change;
                Reply::Adjusted(self.adjust(rule, key, (*adjustment, *id)), now)
            }
            Call::Decide(_) | Call::Adjust(_) => Reply::NotOwner,
        }
    }

    /// Decides a batch of own keys.
    pub(crate) fn decide(&self, checks: &[Check<'_>]) -> PartReply {
        let mut renewed = SmallVec::new();
        for (place, check) in checks.iter().enumerate() {
            if let Amount::Slot(owner) = check.amount {
                let held = self.memory.adjust_now(check.rule, check.key, Adjustment::Renew { owner });
                if held.units() > 0 {
                    renewed.push(place);
                }
            }
        }
        PartReply { answer: self.memory.decide_now(checks), renewed }
    }

    /// Adjusts an own key, once if there is an id.
    pub(crate) fn adjust(
        &self,
        rule: &Rule,
        key: &[u8],
        (adjustment, id): (Adjustment, Option<AdjustmentId>),
    ) -> Outcome {
        let is_repeated = id.is_some_and(|id| !self.applied.is_new(id, self.memory.now()));
        // A grant of nothing reads the state.
        let adjustment = if is_repeated { Adjustment::Grant { units: 0 } } else { adjustment };
        self.memory.adjust_now(rule, key, adjustment)
    }
}
