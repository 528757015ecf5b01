//! Limits that are tried beside the ones in force.
//!
//! A candidate counts as it would if it were in force: so it must also be charged for
//! what the limit beside it refused, where it would have admitted that itself and nobody
//! else refused. A refused batch charges nothing, so that takes a second one, of the
//! candidates alone. It is rare: only a candidate that is more generous gets there.

use smallvec::SmallVec;
use tollgate_policy::{Check, Limit};
use tollgate_store::{Outcomes, Store};

use super::{Batch, Limiter, ask};
use crate::decision::Decision;

/// The checks of a refused request that a candidate would have admitted, by their places.
type Generous = SmallVec<[usize; 2]>;

/// Which of the candidates would have let a refused request pass, had they been in force.
fn generous(decision: &Decision<'_>) -> Generous {
    let mut found = Generous::new();
    if !decision.checks.iter().any(|check| check.limit.candidate_of().is_some()) {
        return found;
    }
    let refuses = |limit: &Limit| {
        let counted = decision.checks.iter().zip(&decision.outcomes);
        counted
            .into_iter()
            .any(|(check, outcome)| check.limit.place() == limit.place() && !outcome.is_admitted())
    };
    let binds = |check: &Check<'_>| super::ask(check, None).binding;
    for (at, check) in decision.checks.iter().enumerate() {
        let Some(live) = check.limit.candidate_of() else { continue };
        // With several windows, all of them must agree.
        let others = decision.checks.iter().filter(|it| binds(it) && it.limit.place() != live);
        if !refuses(check.limit) && !others.into_iter().any(|other| refuses(other.limit)) {
            found.push(at);
        }
    }
    found
}

fn batch<'b>(decision: &'b Decision<'_>, generous: &Generous) -> Batch<'b> {
    let chosen = generous.iter().filter_map(|&at| decision.checks.get(at));
    chosen.map(|check| ask(check, decision.owner)).collect()
}

/// The candidates stand as they do after they were charged.
fn stand(decision: &mut Decision<'_>, generous: &Generous, charged: Outcomes) {
    for (&at, outcome) in generous.iter().zip(charged) {
        if let Some(told) = decision.outcomes.get_mut(at) {
            *told = outcome;
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Charges the candidates of a refused request. `false`: the store has to be waited for.
    #[inline]
    pub(super) fn count_candidates_at_once(&self, decision: &mut Decision<'_>) -> bool {
        let generous = generous(decision);
        if generous.is_empty() {
            return true;
        }
        let mut charged = Outcomes::new();
        let answered = self.store.decide_at_once(&batch(decision, &generous), &mut charged).is_some();
        if answered {
            stand(decision, &generous, charged);
        }
        answered
    }

    /// The same, where the store has to be waited for. One that gives no answer leaves
    /// them uncharged: nobody is refused for it.
    pub(super) async fn count_candidates(&self, decision: &mut Decision<'_>) {
        let generous = generous(decision);
        if generous.is_empty() {
            return;
        }
        let batch = batch(decision, &generous);
        let answer = self.ask_store(&batch).await;
        drop(batch);
        if let Ok(answer) = answer {
            stand(decision, &generous, answer.outcomes);
        }
    }
}
