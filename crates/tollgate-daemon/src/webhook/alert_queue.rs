//! The alerts, whether the receiver was notified of them, and which ones wait to be sent.
//!
//! An alert is removed when its end was sent, or when it ended before its start was sent. Messages
//! therefore come in pairs.
//!
//! Sending is in `webhook`.

use std::collections::{HashMap, HashSet, VecDeque};

use tollgate::Timestamp;
use tollgate_telemetry::ExhaustedKey;

/// The maximum number of alerts: twice the maximum that the watcher reports.
const MAX_ALERTS: usize = 8_192;

/// All alerts that are sent or wait to be sent.
#[derive(Debug, Default)]
pub(super) struct AlertQueue {
    /// The alerts by the hash of their allowance.
    entries: HashMap<u64, Entry>,
    /// The alerts that wait to be sent, the oldest first and each once.
    queue: VecDeque<u64>,
    dropped: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    alert: ExhaustedKey,
    /// The time of the end, if it has ended.
    over: Option<Timestamp>,
    stage: Stage,
    is_queued: bool,
    /// A message is in flight, and its result is unknown.
    is_under_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The start was not sent.
    Unsent,
    /// The start was sent.
    Notified,
    /// The receiver refused the message permanently.
    GivenUp,
}

/// A message about an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) alert: ExhaustedKey,
    /// The time of the end; `None` while the alert lasts.
    pub(super) over: Option<Timestamp>,
}

impl AlertQueue {
    /// Updates the current alerts: adds new ones, ends missing ones.
    pub(super) fn see(&mut self, alerts: &[ExhaustedKey], now: Timestamp) {
        let mut lasting = HashSet::with_capacity(alerts.len());
        for alert in alerts {
            lasting.insert(alert.key_hash);
            if !self.entries.contains_key(&alert.key_hash) && self.entries.len() >= MAX_ALERTS {
                self.make_room();
            }
            let entry = self.entries.entry(alert.key_hash).or_insert_with(|| Entry {
                alert: alert.clone(),
                over: None,
                stage: Stage::Unsent,
                is_queued: false,
                is_under_way: false,
            });
            entry.alert.clone_from(alert);
            entry.over = None;
            if entry.stage == Stage::Unsent && !entry.is_queued && !entry.is_under_way {
                entry.is_queued = true;
                self.queue.push_back(alert.key_hash);
            }
        }
        let (queue, dropped) = (&mut self.queue, &mut self.dropped);
        self.entries.retain(|key_hash, entry| {
            if lasting.contains(key_hash) || entry.over.is_some() {
                return true;
            }
            entry.over = Some(now);
            if entry.is_under_way {
                return true;
            }
            if entry.stage == Stage::Notified && !entry.is_queued {
                entry.is_queued = true;
                queue.push_back(*key_hash);
            }
            *dropped += u64::from(entry.stage == Stage::Unsent);
            entry.stage == Stage::Notified
        });
    }

    /// Returns the next alert to send, if there is one.
    pub(super) fn next(&mut self) -> Option<u64> {
        let key_hash = self.queue.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&key_hash) {
            entry.is_queued = false;
        }
        Some(key_hash)
    }

    /// Returns the message of an alert; `None` if there is nothing to send any more. The caller must
    /// report the result.
    pub(super) fn message(&mut self, key_hash: u64) -> Option<Message> {
        let entry = self.entries.get_mut(&key_hash)?;
        let is_new = match entry.stage {
            Stage::Unsent => entry.over.is_none(),
            Stage::Notified => entry.over.is_some(),
            Stage::GivenUp => false,
        };
        entry.is_under_way = is_new;
        is_new.then(|| Message { alert: entry.alert.clone(), over: entry.over })
    }

    /// Records that a message was sent.
    pub(super) fn sent(&mut self, key_hash: u64, message: &Message) {
        let stage = if message.over.is_some() { Stage::Unsent } else { Stage::Notified };
        self.settle(key_hash, stage, message);
    }

    /// Records that a message failed and must be retried.
    pub(super) fn again(&mut self, key_hash: u64) {
        let Some(entry) = self.entries.get_mut(&key_hash) else { return };
        entry.is_under_way = false;
        if entry.stage == Stage::Unsent && entry.over.is_some() {
            self.dropped += 1;
            self.entries.remove(&key_hash);
        } else {
            self.put(key_hash);
        }
    }

    /// Records that a message is given up.
    pub(super) fn give_up(&mut self, key_hash: u64, message: &Message) {
        self.dropped += 1;
        let stage = if message.over.is_some() { Stage::Unsent } else { Stage::GivenUp };
        self.settle(key_hash, stage, message);
    }

    /// Returns the number of alerts whose start or end was not sent, each counted once.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Closes the queue.
    pub(super) const fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Applies the result of a message. The alert may have ended or started again in the meantime.
    fn settle(&mut self, key_hash: u64, stage: Stage, message: &Message) {
        let Some(entry) = self.entries.get_mut(&key_hash) else { return };
        (entry.stage, entry.is_under_way) = (stage, false);
        match (entry.over.is_some(), message.over.is_some()) {
            (true, true) => drop(self.entries.remove(&key_hash)),
            (true, false) if stage == Stage::GivenUp => drop(self.entries.remove(&key_hash)),
            (false, false) => {}
            _ => self.put(key_hash),
        }
    }

    fn put(&mut self, key_hash: u64) {
        if let Some(entry) = self.entries.get_mut(&key_hash).filter(|it| !it.is_queued) {
            entry.is_queued = true;
            self.queue.push_back(key_hash);
        }
    }

    /// Gives up the end of an alert. There is one, because the watcher reports at most half as many.
    fn make_room(&mut self) {
        let over = self.queue.iter().position(|it| self.entries.get(it).is_some_and(|it| it.over.is_some()));
        if let Some(key_hash) = over.and_then(|at| self.queue.remove(at)) {
            self.entries.remove(&key_hash);
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use tollgate::RuleId;

    fn alert(key_hash: u64) -> ExhaustedKey {
        let at = Timestamp::from_secs(1_000);
        let (limit, key) = ("api".into(), "ann".into());
        ExhaustedKey {
            limit,
            key,
            tag: 0,
            key_hash,
            rule: RuleId(1),
            since: at,
            last: at,
            until: at,
            refused: 1,
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(2_000 + second)
    }

    /// Returns the next message.
    fn next(alert_queue: &mut AlertQueue) -> Option<(u64, Message)> {
        while let Some(key_hash) = alert_queue.next() {
            if let Some(message) = alert_queue.message(key_hash) {
                return Some((key_hash, message));
            }
        }
        None
    }

    /// Sends all messages: `+` for the start and `-` for the end of an alert.
    fn send_all(alert_queue: &mut AlertQueue) -> String {
        let mut sent = String::new();
        while let Some((key_hash, message)) = next(alert_queue) {
            alert_queue.sent(key_hash, &message);
            let _ = write!(sent, "{}{key_hash} ", if message.over.is_some() { '-' } else { '+' });
        }
        sent
    }

    #[test]
    fn a_start_and_an_end_are_each_sent_once() {
        let mut alert_queue = AlertQueue::default();
        (0..3).for_each(|second| alert_queue.see(&[alert(7), alert(8)], at(second)));
        assert_eq!(send_all(&mut alert_queue), "+7 +8 ");
        alert_queue.see(&[alert(8)], at(3));
        alert_queue.see(&[alert(8)], at(4));
        assert_eq!(send_all(&mut alert_queue), "-7 ");
        alert_queue.see(&[alert(7)], at(5));
        alert_queue.see(&[], at(6));
        assert_eq!((send_all(&mut alert_queue), alert_queue.dropped()), ("-8 ".to_owned(), 1));
        assert!(alert_queue.entries.is_empty(), "{alert_queue:?}");
    }

    #[test]
    fn an_alert_that_ends_before_it_was_sent_counts_once() {
        let mut alert_queue = AlertQueue::default();
        alert_queue.see(&[alert(7)], at(0));
        for _ in 0..5 {
            let (key_hash, _) = next(&mut alert_queue).unwrap();
            alert_queue.again(key_hash);
        }
        assert_eq!(alert_queue.dropped(), 0, "an attempt is not counted");
        alert_queue.see(&[], at(1));
        assert_eq!((send_all(&mut alert_queue), alert_queue.dropped()), (String::new(), 1));
        assert!(alert_queue.entries.is_empty(), "{alert_queue:?}");
    }

    #[test]
    fn an_end_is_retried_until_it_is_sent() {
        let mut alert_queue = AlertQueue::default();
        alert_queue.see(&[alert(7)], at(0));
        assert_eq!(send_all(&mut alert_queue), "+7 ");
        for second in 1..100 {
            alert_queue.see(&[], at(second));
            let (key_hash, message) = next(&mut alert_queue).unwrap();
            assert_eq!(message.over, Some(at(1)));
            alert_queue.again(key_hash);
        }
        assert_eq!((send_all(&mut alert_queue), alert_queue.dropped()), ("-7 ".to_owned(), 0));
    }

    #[test]
    fn changes_during_a_message_are_sent_after_it() {
        let mut alert_queue = AlertQueue::default();
        alert_queue.see(&[alert(7)], at(0));
        let (key_hash, begins) = next(&mut alert_queue).unwrap();
        alert_queue.see(&[], at(1));
        alert_queue.sent(key_hash, &begins);
        assert_eq!((alert_queue.dropped(), alert_queue.queue.len()), (0, 1), "{alert_queue:?}");
        let (key_hash, ends) = next(&mut alert_queue).unwrap();
        assert!(ends.over.is_some());
        alert_queue.see(&[alert(7)], at(2));
        alert_queue.sent(key_hash, &ends);
        assert_eq!(send_all(&mut alert_queue), "+7 ");
        alert_queue.see(&[], at(3));
        alert_queue.see(&[alert(7)], at(4));
        assert_eq!(send_all(&mut alert_queue), "", "the alert lasts, and its start was sent");
    }

    #[test]
    fn an_alert_that_ends_while_its_message_fails_counts_once() {
        let mut alert_queue = AlertQueue::default();
        alert_queue.see(&[alert(7)], at(0));
        let (key_hash, _) = next(&mut alert_queue).unwrap();
        alert_queue.see(&[], at(1));
        assert_eq!(alert_queue.dropped(), 0, "the message may still arrive");
        alert_queue.again(key_hash);
        alert_queue.see(&[], at(2));
        assert_eq!((send_all(&mut alert_queue), alert_queue.dropped()), (String::new(), 1));
        assert!(alert_queue.entries.is_empty(), "{alert_queue:?}");
    }

    #[test]
    fn a_refused_message_is_not_retried_and_counts_once() {
        let mut alert_queue = AlertQueue::default();
        alert_queue.see(&[alert(7)], at(0));
        let (key_hash, message) = next(&mut alert_queue).unwrap();
        alert_queue.give_up(key_hash, &message);
        alert_queue.see(&[alert(7)], at(1));
        alert_queue.see(&[], at(2));
        assert_eq!((send_all(&mut alert_queue), alert_queue.dropped()), (String::new(), 1));
        assert!(alert_queue.entries.is_empty(), "{alert_queue:?}");
    }

    #[test]
    fn the_number_of_alerts_is_bounded() {
        let mut alert_queue = AlertQueue::default();
        for round in 0..20 {
            let alerts: Vec<_> = (0..1_000).map(|key_hash| alert(round * 1_000 + key_hash)).collect();
            alert_queue.see(&alerts, at(round));
            let mut ends = Vec::new();
            while let Some((key_hash, message)) = next(&mut alert_queue) {
                match message.over {
                    None => alert_queue.sent(key_hash, &message),
                    Some(_) => ends.push(key_hash),
                }
            }
            for key_hash in ends {
                alert_queue.again(key_hash);
            }
        }
        assert!(
            alert_queue.entries.len() <= MAX_ALERTS && alert_queue.queue.len() <= MAX_ALERTS,
            "{}",
            alert_queue.entries.len()
        );
        assert_eq!(alert_queue.dropped(), 20_000 - MAX_ALERTS as u64);
    }
}
