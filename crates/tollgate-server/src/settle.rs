//! `POST /v1/settle`, `/v1/release` and `/v1/renew`: operations after an admitted request.
//!
//! A request may be charged before its cost is known. Its final cost replaces the charge: settling
//! again at the same cost changes nothing, at another cost it is an error. Settling releases the slots
//! of the request.
//!
//! A request that waits in the queue of a limit and is settled at cost 0 leaves the queue: its whole
//! charge is refunded, also by limits that are not corrected to a reported cost.
//!
//! A store that gives no answer is no error: the limiter keeps the change and applies it later. Only a
//! change that cannot be kept is refused, and then the caller may repeat it at the same cost.

use tollgate::{DecisionId, Store};
use tollgate_api::{ReleaseRequest, Released, RenewRequest, Renewed, SettleRequest, Settled};

use crate::api::Inner;
use crate::body::{quoted, read};
use crate::json::{Text, Units};
use crate::problem::Problem;
use crate::receipts::{MAX_RECEIPTS, SettleState};
use crate::reply::{Reply, json_of};

impl<S: Store> Inner<S> {
    pub(crate) async fn settle(&self, body: &[u8]) -> Result<Reply, Problem> {
        let request: SettleRequest<Text<'_>, Units> = read(body, &["id", "cost"])?;
        let (id, cost) = (decision_id(&request.id)?, request.cost.count()?);
        match self.receipts.settle(id, cost, self.now()) {
            SettleState::Unknown => return Err(unknown(id, "settle")),
            SettleState::Already(final_cost) if final_cost == cost => {}
            SettleState::Already(final_cost) => {
                return Err(Problem::conflict(format!(
                    "decision `{id}` is already settled as {final_cost}, and that is final"
                )));
            }
            SettleState::Open { receipt, leaves } => {
                let limiter = self.limiter.load();
                // If the caller stops waiting, the limiter completes the settlement.
                let settled = if leaves {
                    limiter.refund_receipt(&receipt).await
                } else {
                    limiter.settle_receipt(&receipt, cost).await
                };
                if let Err(error) = settled {
                    let in_doubt = error.is_in_doubt();
                    if in_doubt && !limiter.recognizes_repetitions() {
                        return Err(Problem::settled_in_doubt(&error));
                    }
                    self.receipts.reopen(id, self.now());
                    return Err(Problem::not_settled(&error));
                }
                // A slot that is not released expires with its lease.
                let _outage = limiter.release_receipt(&receipt).await;
            }
        }
        Ok(json_of(&Settled { id: id.to_string(), cost }))
    }

    pub(crate) async fn release(&self, body: &[u8]) -> Result<Reply, Problem> {
        let request: ReleaseRequest<Text<'_>> = read(body, &["id"])?;
        let id = decision_id(&request.id)?;
        let receipt = self.receipts.find(id).ok_or_else(|| unknown(id, "release"))?;
        self.limiter.load().release_receipt(&receipt).await.map_err(|error| Problem::outage(&error))?;
        Ok(json_of(&Released { id: id.to_string(), slots: receipt.slots() as u64 }))
    }

    pub(crate) async fn renew(&self, body: &[u8]) -> Result<Reply, Problem> {
        let request: RenewRequest<Text<'_>> = read(body, &["id"])?;
        let id = decision_id(&request.id)?;
        let receipt = self.receipts.renew(id).ok_or_else(|| unknown(id, "renew"))?;
        let renewed = self.limiter.load().renew_receipt(&receipt).await;
        let slots = renewed.map_err(|error| Problem::outage(&error))? as u64;
        Ok(json_of(&Renewed { id: id.to_string(), slots }))
    }
}

fn decision_id(text: &Text<'_>) -> Result<DecisionId, Problem> {
    text.as_str().parse().map_err(|_| {
        let shown = quoted(text.as_str());
        Problem::senseless(format!(
            "`id` is not the id of a decision: `{shown}`; it has sixteen hexadecimal digits"
        ))
    })
}

fn unknown(id: DecisionId, what: &str) -> Problem {
    Problem::not_found(format!(
        "there is nothing to {what} under `{id}`: ids are kept for the last {MAX_RECEIPTS} decisions \
         that were allowed and counted"
    ))
}
