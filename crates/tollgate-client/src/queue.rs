//! The order of calls that wait for one bucket.
//!
//! Classes share the bucket by weight (16 : 4 : 1), so that a lower class is slow and not starved. Within a class the
//! flows, such as the tenants of a program, take turns; within a flow calls keep their order. The number of calls is
//! bounded by the owner of the queue.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// The class of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Users wait for it.
    High,
    /// Everything else.
    #[default]
    Normal,
    /// It can wait: batch work, prefetching.
    Low,
}

/// The cost of a turn in each class: the reciprocal of its weight.
const STRIDES: [u64; 3] = [1, 4, 16];

/// Calls that wait, in the order in which they will be sent.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    classes: [Class; 3],
    /// The virtual time of the turn that was taken last.
    clock: u64,
    arrivals: u64,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// The virtual time of the next turn of the class.
    pass: u64,
    /// Waiting calls and their flows, by turn and arrival.
    calls: BTreeMap<(u64, u64), (u64, u64)>,
    /// The turn of the last call, and the number of calls, of each flow that has calls.
    flows: HashMap<u64, (u64, usize)>,
    /// The turn that was taken last.
    turn: u64,
}

/// The place of a waiting call, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    priority: Priority,
    at: (u64, u64),
}

impl Queue {
    /// Adds a call. `flow` groups the calls that take turns with others.
    ///
    /// ```
    /// # use tollgate_client::queue::{Priority, Queue};
    /// let mut queue = Queue::default();
    /// for (call, flow) in [(1, 7), (2, 7), (3, 8)] {
    ///     queue.push(call, Priority::Normal, flow);
    /// }
    /// // Flow 8 has its turn before the second call of flow 7.
    /// assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(1), Some(3), Some(2)]);
    /// ```
    pub fn push(&mut self, call: u64, priority: Priority, flow: u64) -> Place {
        self.insert(call, priority, flow, true)
    }

    /// Adds a call that has waited for its turn before, ahead of the calls of its class that have not.
    pub fn push_again(&mut self, call: u64, priority: Priority, flow: u64) -> Place {
        self.insert(call, priority, flow, false)
    }

    fn insert(&mut self, call: u64, priority: Priority, flow: u64, takes_turn: bool) -> Place {
        self.arrivals += 1;
        let class = &mut self.classes[priority as usize];
        if class.calls.is_empty() {
            // A class that was idle has saved no turns.
            class.pass = class.pass.max(self.clock);
        }
        let (last, count) = class.flows.entry(flow).or_insert((class.turn, 0));
        *count += 1;
        let turn = if takes_turn {
            *last = (*last).max(class.turn) + 1;
            *last
        } else {
            class.turn
        };
        let at = (turn, self.arrivals);
        class.calls.insert(at, (call, flow));
        Place { priority, at }
    }

    /// Returns the next call without removing it.
    pub fn peek(&self) -> Option<u64> {
        let (class, _) = self.next_class()?;
        self.classes[class].calls.first_key_value().map(|(_, (call, _))| *call)
    }

    /// Removes the next call.
    pub fn pop(&mut self) -> Option<u64> {
        let (index, pass) = self.next_class()?;
        let class = &mut self.classes[index];
        let (turn, _) = *class.calls.first_key_value()?.0;
        (class.turn, class.pass, self.clock) = (turn, pass + STRIDES[index], pass);
        let first = class.calls.first_key_value().map(|(at, _)| *at)?;
        class.remove(first)
    }

    /// Removes a call that leaves before its turn.
    pub fn remove(&mut self, place: &Place) {
        self.classes[place.priority as usize].remove(place.at);
    }

    /// Returns the number of calls of the same class that are sent before the call at this place.
    pub fn ahead(&self, place: &Place) -> usize {
        self.classes[place.priority as usize].calls.range(..place.at).count()
    }

    /// Returns the number of waiting calls.
    pub fn len(&self) -> usize {
        self.classes.iter().map(|class| class.calls.len()).sum()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.calls.is_empty())
    }

    /// Returns the class whose turn it is, and its virtual time.
    fn next_class(&self) -> Option<(usize, u64)> {
        let waiting = self.classes.iter().enumerate().filter(|(_, class)| !class.calls.is_empty());
        waiting.map(|(index, class)| (class.pass, index)).min().map(|(pass, index)| (index, pass))
    }
}

impl Class {
    fn remove(&mut self, at: (u64, u64)) -> Option<u64> {
        let (call, flow) = self.calls.remove(&at)?;
        if let Entry::Occupied(mut entry) = self.flows.entry(flow) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_share_by_weight_and_the_lowest_is_not_starved() {
        let mut queue = Queue::default();
        for call in 0..300 {
            let priority = [Priority::High, Priority::Normal, Priority::Low][call % 3];
            queue.push(call as u64, priority, 0);
        }
        let mut counts = [0; 3];
        for _ in 0..105 {
            counts[usize::try_from(queue.pop().unwrap()).unwrap() % 3] += 1;
        }
        assert!(counts[0] >= 78 && counts[1] >= 18 && counts[2] >= 4, "{counts:?}");
    }

    #[test]
    fn flows_take_turns_and_calls_of_a_flow_keep_their_order() {
        let mut queue = Queue::default();
        for call in 0..6 {
            queue.push(call, Priority::Normal, 1);
        }
        queue.push(10, Priority::Normal, 2);
        queue.push(11, Priority::Normal, 2);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 3, 4, 5]);
    }

    #[test]
    fn a_call_that_waited_before_is_next_and_one_that_left_is_gone() {
        let mut queue = Queue::default();
        let place = queue.push(1, Priority::Normal, 0);
        let last = queue.push(2, Priority::Normal, 0);
        assert_eq!((queue.ahead(&place), queue.ahead(&last)), (0, 1));
        queue.push_again(3, Priority::Normal, 0);
        queue.remove(&place);
        queue.remove(&place);
        assert_eq!((queue.len(), queue.pop(), queue.pop(), queue.pop()), (2, Some(3), Some(2), None));
        assert!(queue.is_empty() && queue.classes.iter().all(|class| class.flows.is_empty()));
    }

    #[test]
    fn an_idle_class_saves_no_turns() {
        let mut queue = Queue::default();
        for call in 0..1_000 {
            queue.push(call, Priority::Low, 0);
            queue.pop();
        }
        for call in 0..20 {
            queue.push(call, Priority::High, 0);
            queue.push(100 + call, Priority::Low, 0);
        }
        let first: Vec<_> = (0..17).filter_map(|_| queue.pop()).collect();
        assert!(first.iter().filter(|call| **call >= 100).count() <= 2, "{first:?}");
    }
}
