//! Alerts about overload: a priority class other than the least important one is shed.
//!
//! Shedding the least important class is expected. When the next class is shed, too, the service loses
//! requests that matter. The alert starts with the first such request and ends a minute after the last
//! one.
//!
//! Invariant: the number of episodes is bounded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::{RuleId, Span, Timestamp};

use crate::exhausted::ExhaustedKey;

/// The time without a shed request after which an episode is over.
const MAX_GAP: Span = Span::from_secs(60);
/// The maximum number of episodes: of the shedders and classes of a few policies.
const MAX_EPISODES: usize = 64;

/// The classes that are shed, and by which shedder.
#[derive(Default)]
pub(crate) struct ShedAlerts(Mutex<Vec<ExhaustedKey>>);

impl ShedAlerts {
    /// Records that a request of a class was shed. The class is not the least important one.
    pub(crate) fn shed(&self, shedder: &str, class: &str, at: Timestamp) {
        let mut episodes = self.lock();
        let is_this = |it: &&mut ExhaustedKey| *it.limit == *shedder && *it.key == *class;
        if let Some(known) = episodes.iter_mut().find(is_this) {
            if at.since(known.last) > MAX_GAP {
                (known.since, known.refused) = (at, 0);
            }
            known.last = known.last.max(at);
            known.until = known.last;
            known.refused += 1;
            return;
        }
        if episodes.len() >= MAX_EPISODES {
            episodes.retain(|it| at.since(it.last) <= MAX_GAP);
            episodes.truncate(MAX_EPISODES - 1);
        }
        let rule = RuleId::of([shedder, class]);
        let (limit, key, key_hash) = (shedder.into(), class.into(), rule.0);
        let (since, last, until) = (at, at, at);
        episodes.push(ExhaustedKey { limit, key, tag: 0, key_hash, rule, since, last, until, refused: 1 });
    }

    /// Returns the classes that are shed now.
    pub(crate) fn alerts(&self, now: Timestamp) -> Vec<ExhaustedKey> {
        self.lock().iter().filter(|it| now.since(it.last) <= MAX_GAP).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExhaustedKey>> {
        // The list is consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + second)
    }

    fn found(alerts: &ShedAlerts, second: u64) -> Vec<(String, Timestamp, u64)> {
        let alerts = alerts.alerts(at(second));
        alerts.into_iter().map(|it| (format!("{} {}", it.limit, it.key), it.since, it.refused)).collect()
    }

    #[test]
    fn an_alert_lasts_from_the_first_shed_request_to_a_minute_after_the_last() {
        let alerts = ShedAlerts::default();
        assert_eq!(found(&alerts, 0), []);
        for second in [0, 30, 90] {
            alerts.shed("shed.node", "normal", at(second));
        }
        assert_eq!(found(&alerts, 150), [("shed.node normal".to_owned(), at(0), 3)]);
        assert_eq!(found(&alerts, 151), []);
        alerts.shed("shed.node", "normal", at(300));
        alerts.shed("shed.fleet", "normal", at(310));
        let both =
            [("shed.node normal".to_owned(), at(300), 1), ("shed.fleet normal".to_owned(), at(310), 1)];
        assert_eq!(found(&alerts, 310), both);
    }

    #[test]
    fn the_number_of_episodes_is_bounded() {
        let alerts = ShedAlerts::default();
        for class in 0..1_000 {
            alerts.shed("shed.node", &class.to_string(), at(class));
        }
        assert!(alerts.lock().len() <= MAX_EPISODES);
        assert_eq!(found(&alerts, 999).last().map(|it| it.0.clone()), Some("shed.node 999".to_owned()));
    }
}
