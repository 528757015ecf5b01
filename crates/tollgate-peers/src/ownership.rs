//! The holder of each partition, as far as this node knows.
//!
//! The list of members names the node that *should* own a partition (`table`). The holding names its owner: a
//! process, and the number of times that the partition has changed hands (its term). A node decides a key
//! only while it is the holder of the partition, whatever any list says.
//!
//! | change | made by | result |
//! |---|---|---|
//! | grant | the holder, asked by a node whose list gives it the partition | next term; the old holder is a source |
//! | takeover | a node whose list gives it the partition, if the holder is not in that list and cannot be reached | the same |
//! | restart | a process that finds its address as holder, with the number of another process | the same |
//! | first | a node whose list gives it the partition, if no member of this list or the one before that it reaches knows a holder | term 1, no sources |
//!
//! Nodes exchange their holdings, and the higher term wins; of two holders of one term, the higher
//! address. A holder that learns of a higher term gives up, and adds itself to the sources of the winner.
//! A source keeps the states that it had when it gave up, and changes them no more: the holder copies each
//! at the first request for its key (`carry`).
//!
//! Invariant: without takeovers, at most one process is the holder of a partition at any time, because only the
//! holder itself ends its term. Tested by `tests::one_holder_at_a_time`, with messages lost, delayed and
//! repeated.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_store::parts::PARTITIONS;

use crate::settings::Address;
use crate::table::list_owners;

/// The maximum number of sources of a partition. Earlier ones count as lost.
pub(crate) const MAX_SOURCES: usize = 16;

/// The incarnation that stands for all lost processes.
pub(crate) const LOST_INCARNATION: u64 = 0;

/// A process that can hold states.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) address: Address,
    /// A random number of the process: another one at the same address has none of its states.
    pub(crate) incarnation: u64,
}

/// The holder of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The number of times that the partition has changed hands; zero if no holder is known.
    pub(crate) term: u64,
    pub(crate) holder: Option<Arc<Process>>,
    /// The processes that held the partition before, and may have states that the holder has not.
    pub(crate) sources: Vec<Arc<Process>>,
}

impl Holding {
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.term, &self.holder) > (other.term, &other.holder)
    }

    fn is_of(&self, process: &Process) -> bool {
        self.holder.as_deref() == Some(process)
    }

    fn add_source(&mut self, source: &Arc<Process>) -> bool {
        if self.sources.contains(source) || self.holder.as_ref() == Some(source) {
            return false;
        }
        self.sources.push(Arc::clone(source));
        if self.sources.len() > MAX_SOURCES {
            self.sources.retain(|it| it.incarnation != LOST_INCARNATION);
            let address = Address { host: "lost.invalid".to_owned(), port: 1 };
            let lost = Arc::new(Process { address, incarnation: LOST_INCARNATION });
            self.sources.splice(..self.sources.len() + 1 - MAX_SOURCES, [lost]);
        }
        true
    }

    /// Returns the next term, in which `holder` continues from this one.
    fn next(&self, holder: &Arc<Process>) -> Self {
        let mut next =
            Self { term: self.term + 1, holder: Some(Arc::clone(holder)), sources: self.sources.clone() };
        next.sources.retain(|it| it != holder);
        if let Some(last) = &self.holder {
            next.add_source(last);
        }
        next
    }
}

/// A holding, and the time at which this node learned of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownHolding {
    pub(crate) holding: Arc<Holding>,
    pub(crate) since: Timestamp,
}

/// The holdings that one node knows, and those that it wants.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// This process, if it is a member.
    pub(crate) me: Option<Arc<Process>>,
    incarnation: u64,
    pub(crate) members: Vec<Address>,
    /// Members of earlier lists, which have to be asked for their holdings once more.
    pub(crate) former: HashSet<Address>,
    /// The member that each partition belongs to, by the list.
    owners: Vec<usize>,
    pub(crate) known: Vec<KnownHolding>,
    /// Partitions that this node should hold and has not held since its list changed. A partition that
    /// another node has claimed since is not claimed back: lists that differ would pass it back and forth.
    is_wanted: Vec<bool>,
}

impl Ownership {
    pub(crate) fn new(incarnation: u64) -> Self {
        Self {
            me: None,
            incarnation,
            members: Vec::new(),
            former: HashSet::new(),
            owners: list_owners(&[]),
            known: vec![KnownHolding::default(); PARTITIONS],
            is_wanted: vec![false; PARTITIONS],
        }
    }

    /// Uses another list of members.
    pub(crate) fn set_list(&mut self, members: Vec<Address>, here: Option<&Address>, now: Timestamp) {
        let here = here.filter(|here| members.contains(here)).cloned();
        let here = here.as_ref();
        if let Some(here) = here
            && self.me.as_ref().is_none_or(|me| me.address != *here)
        {
            self.me = Some(Arc::new(Process { address: here.clone(), incarnation: self.incarnation }));
        }
        let before = std::mem::replace(&mut self.members, members);
        self.owners = list_owners(&self.members);
        for partition in 0..PARTITIONS {
            let is_own = here.is_some() && self.list_owner(partition) == here;
            self.is_wanted[partition] = is_own && !self.is_held(partition);
        }
        // Alone from the start, there is no node to ask.
        let is_alone = before.is_empty() && here.is_some() && self.members.len() == 1;
        self.former.extend(before);
        if is_alone {
            self.take_unknown(now);
        }
    }

    /// Returns the owner of a partition by the list.
    pub(crate) fn list_owner(&self, partition: usize) -> Option<&Address> {
        self.members.get(self.owners[partition])
    }

    /// Returns whether this process holds a partition.
    pub(crate) fn is_held(&self, partition: usize) -> bool {
        self.me.as_deref().is_some_and(|me| self.known[partition].holding.is_of(me))
    }

    /// Returns the partitions that this node should hold, and another process holds.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (usize, &Arc<Process>)> {
        (0..PARTITIONS).filter(|&it| self.is_wanted[it]).filter_map(|partition| {
            self.known[partition].holding.holder.as_ref().map(|holder| (partition, holder))
        })
    }

    fn set(&mut self, partition: usize, holding: Holding, now: Timestamp) {
        let is_mine = self.me.as_deref().is_some_and(|me| holding.is_of(me));
        self.is_wanted[partition] &= !is_mine;
        self.known[partition] = KnownHolding { holding: Arc::new(holding), since: now };
    }

    /// Learns of a holding. Returns whether it was news.
    pub(crate) fn learn(&mut self, partition: usize, news: &Holding, now: Timestamp) -> bool {
        let known = Arc::clone(&self.known[partition].holding);
        let was_mine = self.is_held(partition);
        let mut next = if news.is_newer_than(&known) { news.clone() } else { (*known).clone() };
        let mut is_news = news.is_newer_than(&known);
        if (news.term, &news.holder) == (known.term, &known.holder) {
            for source in &news.sources {
                is_news |= next.add_source(source);
            }
        }
        if let Some(me) = self.me.clone() {
            if was_mine && !next.is_of(&me) {
                // Not by a grant of this node: it did not know of the other holder.
                next.add_source(&me);
                self.is_wanted[partition] = self.list_owner(partition) == Some(&me.address);
            }
            let is_former = |it: &&Arc<Process>| it.address == me.address && ***it != *me;
            if next.holder.as_ref().as_ref().is_some_and(is_former) {
                next = next.next(&me);
                is_news = true;
            } else if let Some(former) = news.holder.as_ref().filter(is_former)
                && next.is_of(&me)
                && news.term >= next.term
                && !next.sources.contains(former)
            {
                // This process began without knowing of its predecessor.
                next.term = news.term + 1;
                next.add_source(former);
                is_news = true;
            }
        }
        if is_news {
            self.set(partition, next, now);
        }
        is_news
    }

    /// Gives partitions to another process, as far as this one holds them.
    pub(crate) fn grant(&mut self, to: &Arc<Process>, partitions: &[u8], now: Timestamp) -> bool {
        let mut is_changed = false;
        for partition in partitions.iter().map(|&it| usize::from(it)) {
            if self.is_held(partition) && self.me.as_ref() != Some(to) {
                let next = self.known[partition].holding.next(to);
                self.set(partition, next, now);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Takes the wanted partitions of which no holder is known. Returns whether there were any.
    pub(crate) fn take_unknown(&mut self, now: Timestamp) -> bool {
        self.take(now, |holding| holding.term == 0)
    }

    /// Takes the wanted partitions of a process that is lost. Returns whether there were any.
    pub(crate) fn take_over(&mut self, lost: &Process, now: Timestamp) -> bool {
        self.take(now, |holding| holding.is_of(lost))
    }

    fn take(&mut self, now: Timestamp, is_free: impl Fn(&Holding) -> bool) -> bool {
        let Some(me) = self.me.clone() else { return false };
        let mut is_changed = false;
        for partition in 0..PARTITIONS {
            if self.is_wanted[partition] && is_free(&self.known[partition].holding) {
                let next = self.known[partition].holding.next(&me);
                self.set(partition, next, now);
                is_changed = true;
            }
        }
        is_changed
    }
}

#[cfg(test)]
mod tests;
