//! Explanations of decisions that another node made.
//!
//! Only callers that may read explanations cause questions, and each node waits for a few at a time. The
//! question is the id of a decision, which cannot be guessed. The answer is in the store for a few
//! seconds, with keys and addresses as `privacy` of the answering node shows them.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Deserializer, Serialize};
use tollgate::store::node_board::{MAX_ANSWER_BYTES, Question};
use tollgate::store::{Store, StoreError};
use tollgate::{DecisionId, Limiter};
use tollgate_api::Explanation;
use tollgate_document::sanitize::printable;

use super::Fleet;
use crate::api::Inner;

/// The maximum number of questions that a node waits for at a time.
const MAX_ASKING: usize = 8;
/// The maximum length of a text in an explanation, in characters.
const MAX_TEXT_CHARS: usize = 2_000;

/// A text of another node, sanitized and cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PrintableText(String);

impl<'de> Deserialize<'de> for PrintableText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(Self(printable(&text.chars().take(MAX_TEXT_CHARS).collect::<String>())))
    }
}

/// A question that this node waits for. Dropping it permits another.
struct QuestionGuard<'f>(&'f AtomicUsize);

impl<'f> QuestionGuard<'f> {
    fn begin(asking: &'f AtomicUsize) -> Option<Self> {
        let more = |it: usize| (it < MAX_ASKING).then_some(it + 1);
        asking.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(asking))
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fleet {
    async fn ask(&self, id: DecisionId) -> Option<Explanation<PrintableText>> {
        let _asking = QuestionGuard::begin(&self.asking)?;
        let answer = self.board.ask(Question(id.0)).await.ok()??;
        read(&answer, id)
    }
}

/// Reads the answer about a decision. `None` if it is not an explanation of it.
fn read(answer: &[u8], id: DecisionId) -> Option<Explanation<PrintableText>> {
    let explanation: Explanation<PrintableText> = serde_json::from_slice(answer).ok()?;
    let is_meant = explanation.id.as_ref().is_some_and(|it| it.0 == id.to_string());
    (is_meant && explanation.node.is_some()).then_some(explanation)
}

impl<S: Store> Inner<S> {
    /// Asks the other nodes to explain a decision. `None` if there are none, or none has answered.
    pub(crate) async fn ask_other_nodes(
        &self,
        limiter: &Limiter<S>,
        id: DecisionId,
    ) -> Option<Explanation<PrintableText>> {
        let fleet = self.fleet.get().filter(|_| limiter.nodes() > 1)?;
        fleet.ask(id).await
    }

    /// Answers the question of another node, if this node knows the decision.
    pub(super) async fn answer_question(&self, fleet: &Fleet, question: Question) -> Result<(), StoreError> {
        let Some(watcher) = self.watcher.get() else { return Ok(()) };
        let id = DecisionId(question.0);
        let record = match watcher.record(id) {
            Some(record) => record,
            None => match self.find_on_disk(id).await {
                Ok(Some(record)) => record.into(),
                _ => return Ok(()),
            },
        };
        let limiter = self.limiter.load();
        let mut explanation = self.explained_from_disk(&limiter, watcher, &record);
        explanation.node = Some((&*fleet.name).into());
        let answer = serde_json::to_vec(&explanation).unwrap_or_default();
        if answer.is_empty() || answer.len() > MAX_ANSWER_BYTES {
            return Ok(());
        }
        fleet.board.answer(question, &answer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explanation_of_the_decision_is_an_answer() {
        let id = DecisionId(0xc0ff_ee00);
        let answer = |id_text: &str, node: &str| {
            format!(
                r#"{{"id":"{id_text}","allowed":false,"summary":"no\u001b[2J","reason":null,"limit":null,
                     "retry_after_ms":null,"request":{{}},"limits":[],"shed":null,"trace_id":null,"node":{node}}}"#
            )
        };
        let explanation = read(answer("00000000c0ffee00", "\"b:1\"").as_bytes(), id).unwrap();
        assert!(!explanation.summary.0.contains('\u{1b}'), "{explanation:?}");
        for other in [
            answer("00000000c0ffee01", "\"b:1\""),
            answer("00000000c0ffee00", "null"),
            "{}".to_owned(),
            "null".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(other.as_bytes(), id), None, "{other}");
        }
    }

    #[test]
    fn a_node_waits_for_a_few_answers_at_a_time() {
        let asking = AtomicUsize::new(0);
        let all: Vec<_> = (0..MAX_ASKING).filter_map(|_| QuestionGuard::begin(&asking)).collect();
        assert_eq!((all.len(), QuestionGuard::begin(&asking).is_none()), (MAX_ASKING, true));
        drop(all);
        assert!(QuestionGuard::begin(&asking).is_some());
    }
}
