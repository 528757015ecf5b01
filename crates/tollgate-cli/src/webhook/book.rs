//! Which alerts there are, who was told of them, and which of them wait to be told.
//!
//! An alert is forgotten when its end was told, or when it ended and nobody was told that
//! it began. So a message is about what is so when it is sent, and comes in pairs.
//!
//! Not here: sending (`webhook`).

use std::collections::{HashMap, HashSet, VecDeque};

use tollgate::Timestamp;
use tollgate_watch::AtZero;

/// The most alerts that are known: twice what the watcher ever tells of at once.
const MOST: usize = 8_192;

/// All alerts that somebody is told of.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// By the spot of the allowance.
    entries: HashMap<u64, Entry>,
    /// Those that there is something to say of, the oldest first; each once.
    queue: VecDeque<u64>,
    untold: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    alert: AtZero,
    /// When it ended, if it has.
    over: Option<Timestamp>,
    stage: Stage,
    is_queued: bool,
    /// Somebody is being told of it: what becomes of that is not known yet.
    is_under_way: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody was told that it began.
    Untold,
    /// They were.
    Told,
    /// They would not hear of it.
    GivenUp,
}

/// What is to be said of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) alert: AtZero,
    /// When it ended; `None`: it lasts.
    pub(super) over: Option<Timestamp>,
}

impl Book {
    /// These are the alerts now: some are new, and others are over.
    pub(super) fn see(&mut self, alerts: &[AtZero], now: Timestamp) {
        let mut lasting = HashSet::with_capacity(alerts.len());
        for alert in alerts {
            lasting.insert(alert.spot);
            if !self.entries.contains_key(&alert.spot) && self.entries.len() >= MOST {
                self.make_room();
            }
            let entry = self.entries.entry(alert.spot).or_insert_with(|| Entry {
                alert: alert.clone(),
                over: None,
                stage: Stage::Untold,
                is_queued: false,
                is_under_way: false,
            });
            entry.alert.clone_from(alert);
            entry.over = None;
            if entry.stage == Stage::Untold && !entry.is_queued && !entry.is_under_way {
                entry.is_queued = true;
                self.queue.push_back(alert.spot);
            }
        }
        let (queue, untold) = (&mut self.queue, &mut self.untold);
        self.entries.retain(|spot, entry| {
            if lasting.contains(spot) || entry.over.is_some() {
                return true;
            }
            entry.over = Some(now);
            if entry.is_under_way {
                return true;
            }
            if entry.stage == Stage::Told && !entry.is_queued {
                entry.is_queued = true;
                queue.push_back(*spot);
            }
            *untold += u64::from(entry.stage == Stage::Untold);
            entry.stage == Stage::Told
        });
    }

    /// The next to be told of, if any.
    pub(super) fn next(&mut self) -> Option<u64> {
        let spot = self.queue.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&spot) {
            entry.is_queued = false;
        }
        Some(spot)
    }

    /// What is to be said of one; `None`: nothing any more. Whoever asks says afterwards what
    /// became of it.
    pub(super) fn message(&mut self, spot: u64) -> Option<Message> {
        let entry = self.entries.get_mut(&spot)?;
        let is_new = match entry.stage {
            Stage::Untold => entry.over.is_none(),
            Stage::Told => entry.over.is_some(),
            Stage::GivenUp => false,
        };
        entry.is_under_way = is_new;
        is_new.then(|| Message { alert: entry.alert.clone(), over: entry.over })
    }

    /// This was said of one.
    pub(super) fn told(&mut self, spot: u64, message: &Message) {
        let stage = if message.over.is_some() { Stage::Untold } else { Stage::Told };
        self.settle(spot, stage, message);
    }

    /// This could not be said of one, and is to be tried again.
    pub(super) fn again(&mut self, spot: u64) {
        let Some(entry) = self.entries.get_mut(&spot) else { return };
        entry.is_under_way = false;
        if entry.stage == Stage::Untold && entry.over.is_some() {
            self.untold += 1;
            self.entries.remove(&spot);
        } else {
            self.put(spot);
        }
    }

    /// This will never be said of one.
    pub(super) fn give_up(&mut self, spot: u64, message: &Message) {
        self.untold += 1;
        let stage = if message.over.is_some() { Stage::Untold } else { Stage::GivenUp };
        self.settle(spot, stage, message);
    }

    /// Alerts that nobody was told of, or not of their end: each counts once.
    pub(super) const fn untold(&self) -> u64 {
        self.untold
    }

    /// No more will come.
    pub(super) const fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A message is dealt with. The alert may have ended meanwhile, or begun anew.
    fn settle(&mut self, spot: u64, stage: Stage, message: &Message) {
        let Some(entry) = self.entries.get_mut(&spot) else { return };
        (entry.stage, entry.is_under_way) = (stage, false);
        match (entry.over.is_some(), message.over.is_some()) {
            (true, true) => drop(self.entries.remove(&spot)),
            (true, false) if stage == Stage::GivenUp => drop(self.entries.remove(&spot)),
            (false, false) => {}
            _ => self.put(spot),
        }
    }

    fn put(&mut self, spot: u64) {
        if let Some(entry) = self.entries.get_mut(&spot).filter(|it| !it.is_queued) {
            entry.is_queued = true;
            self.queue.push_back(spot);
        }
    }

    /// Gives up the end of an alert: the watcher knows half as many, so there is one.
    fn make_room(&mut self) {
        let over = self.queue.iter().position(|it| self.entries.get(it).is_some_and(|it| it.over.is_some()));
        if let Some(spot) = over.and_then(|at| self.queue.remove(at)) {
            self.entries.remove(&spot);
            self.untold += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use tollgate::RuleId;

    fn alert(spot: u64) -> AtZero {
        let at = Timestamp::from_secs(1_000);
        let (limit, key) = ("api".into(), "ann".into());
        AtZero { limit, key, tag: 0, spot, rule: RuleId(1), since: at, last: at, until: at, refused: 1 }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(2_000 + second)
    }

    /// What is sent next.
    fn next(book: &mut Book) -> Option<(u64, Message)> {
        while let Some(spot) = book.next() {
            if let Some(message) = book.message(spot) {
                return Some((spot, message));
            }
        }
        None
    }

    /// `+` for the start and `-` for the end of an alert.
    fn send_all(book: &mut Book) -> String {
        let mut sent = String::new();
        while let Some((spot, message)) = next(book) {
            book.told(spot, &message);
            let _ = write!(sent, "{}{spot} ", if message.over.is_some() { '-' } else { '+' });
        }
        sent
    }

    #[test]
    fn a_start_and_an_end_are_each_told_once() {
        let mut book = Book::default();
        (0..3).for_each(|second| book.see(&[alert(7), alert(8)], at(second)));
        assert_eq!(send_all(&mut book), "+7 +8 ");
        book.see(&[alert(8)], at(3));
        book.see(&[alert(8)], at(4));
        assert_eq!(send_all(&mut book), "-7 ");
        book.see(&[alert(7)], at(5));
        book.see(&[], at(6));
        assert_eq!((send_all(&mut book), book.untold()), ("-8 ".to_owned(), 1));
        assert!(book.entries.is_empty(), "{book:?}");
    }

    #[test]
    fn an_alert_that_is_over_before_it_was_told_is_not_told_and_counts_once() {
        let mut book = Book::default();
        book.see(&[alert(7)], at(0));
        for _ in 0..5 {
            let (spot, _) = next(&mut book).unwrap();
            book.again(spot);
        }
        assert_eq!(book.untold(), 0, "an attempt is no alert");
        book.see(&[], at(1));
        assert_eq!((send_all(&mut book), book.untold()), (String::new(), 1));
        assert!(book.entries.is_empty(), "{book:?}");
    }

    #[test]
    fn an_end_is_tried_until_it_is_told() {
        let mut book = Book::default();
        book.see(&[alert(7)], at(0));
        assert_eq!(send_all(&mut book), "+7 ");
        for second in 1..100 {
            book.see(&[], at(second));
            let (spot, message) = next(&mut book).unwrap();
            assert_eq!(message.over, Some(at(1)));
            book.again(spot);
        }
        assert_eq!((send_all(&mut book), book.untold()), ("-7 ".to_owned(), 0));
    }

    #[test]
    fn what_happens_while_a_message_is_under_way_is_told_after_it() {
        let mut book = Book::default();
        book.see(&[alert(7)], at(0));
        let (spot, begins) = next(&mut book).unwrap();
        book.see(&[], at(1));
        book.told(spot, &begins);
        assert_eq!((book.untold(), book.queue.len()), (0, 1), "{book:?}");
        let (spot, ends) = next(&mut book).unwrap();
        assert!(ends.over.is_some());
        book.see(&[alert(7)], at(2));
        book.told(spot, &ends);
        assert_eq!(send_all(&mut book), "+7 ");
        book.see(&[], at(3));
        book.see(&[alert(7)], at(4));
        assert_eq!(send_all(&mut book), "", "it lasts, and they know");
    }

    #[test]
    fn an_alert_that_ends_while_its_message_gets_lost_counts_once() {
        let mut book = Book::default();
        book.see(&[alert(7)], at(0));
        let (spot, _) = next(&mut book).unwrap();
        book.see(&[], at(1));
        assert_eq!(book.untold(), 0, "it may still arrive");
        book.again(spot);
        book.see(&[], at(2));
        assert_eq!((send_all(&mut book), book.untold()), (String::new(), 1));
        assert!(book.entries.is_empty(), "{book:?}");
    }

    #[test]
    fn what_was_turned_down_is_not_said_again_and_counts_once() {
        let mut book = Book::default();
        book.see(&[alert(7)], at(0));
        let (spot, message) = next(&mut book).unwrap();
        book.give_up(spot, &message);
        book.see(&[alert(7)], at(1));
        book.see(&[], at(2));
        assert_eq!((send_all(&mut book), book.untold()), (String::new(), 1));
        assert!(book.entries.is_empty(), "{book:?}");
    }

    #[test]
    fn no_more_alerts_are_known_than_the_book_has_room_for() {
        let mut book = Book::default();
        for round in 0..20 {
            let alerts: Vec<_> = (0..1_000).map(|spot| alert(round * 1_000 + spot)).collect();
            book.see(&alerts, at(round));
            let mut ends = Vec::new();
            while let Some((spot, message)) = next(&mut book) {
                match message.over {
                    None => book.told(spot, &message),
                    Some(_) => ends.push(spot),
                }
            }
            for spot in ends {
                book.again(spot);
            }
        }
        assert!(book.entries.len() <= MOST && book.queue.len() <= MOST, "{}", book.entries.len());
        assert_eq!(book.untold(), 20_000 - MOST as u64);
    }
}
