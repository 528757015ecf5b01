//! The state that outlives a stream, and the judgment of responses. No I/O.

use std::time::Duration;

use bytes::Bytes;
use tollgate_envoy::EnvoyConfig;

use crate::discovery::DiscoveryResponse;
use crate::resource::quoted;
use crate::snapshot::Snapshot;

/// A response that follows an answer within this time is the server's reaction to the answer.
pub(crate) const REACTION_TIME: Duration = Duration::from_millis(100);
/// The delays of answers to repeated responses.
const MIN_ANSWER_DELAY: Duration = Duration::from_millis(100);
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(10);

/// A response, compared with the configuration in force.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) verdict: Verdict,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    /// The configuration in force.
    Unchanged,
    /// A valid configuration.
    Changed(Snapshot, EnvoyConfig),
    /// The reason why it is invalid.
    Rejected(String),
}

/// Reads a response. Returns `None` if it is not a `DiscoveryResponse`, so that there is no nonce to
/// answer.
pub(crate) fn judge(message: &Bytes, in_force: Option<&Snapshot>, merge: bool) -> Option<Judged> {
    let response = DiscoveryResponse::read(message).ok()?;
    let empty = Snapshot::default();
    let verdict = match in_force.unwrap_or(&empty).read(&response) {
        Err(error) => Verdict::Rejected(error.to_string()),
        Ok(_) if in_force.is_some_and(|it| it.is_of(&response)) => Verdict::Unchanged,
        Ok(snapshot) => match snapshot.config(merge) {
            Ok(config) => Verdict::Changed(snapshot, config),
            Err(reason) => Verdict::Rejected(reason),
        },
    };
    Some(Judged { version: response.version.to_owned(), nonce: response.nonce.to_owned(), verdict })
}

/// The answers of one stream.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    last_nonce: Option<String>,
    /// The number of consecutive responses that followed an answer at once and changed nothing.
    repeats: u32,
}

impl Answers {
    /// Notes a response, and returns how long its answer is held back. A server that repeats a rejected
    /// configuration as soon as it is rejected would keep both sides busy.
    pub(crate) fn note(&mut self, judged: &Judged, is_reaction: bool) -> Duration {
        if self.last_nonce.as_deref() == Some(&judged.nonce) {
            let nonce = quoted(&judged.nonce);
            tracing::warn!(nonce, "the configuration server used a nonce twice");
        }
        self.last_nonce = Some(judged.nonce.clone());
        let is_repeat = is_reaction && !matches!(judged.verdict, Verdict::Changed(..));
        self.repeats = if is_repeat { self.repeats.saturating_add(1) } else { 0 };
        match self.repeats.checked_sub(1) {
            None => Duration::ZERO,
            Some(doubled) => MIN_ANSWER_DELAY.saturating_mul(1 << doubled.min(16)).min(MAX_ANSWER_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_a_server_that_repeats_itself_are_held_back_longer_and_longer() {
        let rejected = |nonce: u32| Judged {
            version: "2".to_owned(),
            nonce: nonce.to_string(),
            verdict: Verdict::Rejected("wrong".to_owned()),
        };
        let mut answers = Answers::default();
        assert_eq!(answers.note(&rejected(0), false), Duration::ZERO);
        let delays: Vec<_> = (1..12).map(|nonce| answers.note(&rejected(nonce), true)).collect();
        assert_eq!(delays[..3], [1, 2, 4].map(|it| Duration::from_millis(100 * it)));
        assert_eq!(delays.last(), Some(&MAX_ANSWER_DELAY));
        // A later response is not a reaction, and a change is never held back.
        assert_eq!(answers.note(&rejected(20), false), Duration::ZERO);
        let changed = Verdict::Changed(Snapshot::default(), EnvoyConfig::default());
        assert_eq!(answers.note(&Judged { verdict: changed, ..rejected(21) }, true), Duration::ZERO);
    }
}
