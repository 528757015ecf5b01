//! Where the keys of each partition are decided.
//!
//! The list of members names the owner of a partition: the member with the highest score for it
//! (rendezvous hashing). If a member joins or leaves, only its own partitions change their owner. Every
//! node computes the same owners from the same list, in any order.
//!
//! A key is decided by the holder of its partition (`ownership`), and by the owner of the list only while
//! no holder is known.

use std::sync::Arc;

use tollgate_core::{RuleId, Timestamp};
use tollgate_store::parts::{PARTITIONS, partition};

use crate::ownership::{Holding, Ownership};
use crate::peer::Peer;
use crate::settings::Address;

/// The place where the keys of a partition are decided.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// This node is the holder.
    Here(Arc<Incoming>),
    /// Another node, by its index in the table.
    There(usize),
    /// The list is empty.
    Unknown,
}

/// The partition of a holder, with the processes that may have states of it.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) holding: Arc<Holding>,
    /// When this node learned of the sources: their states have not changed since.
    pub(crate) since: Timestamp,
}

/// The members, and the place of each partition.
pub(crate) struct Table {
    /// The members in the order of the list, then holders that are not in the list.
    pub(crate) peers: Box<[Arc<Peer>]>,
    /// The number of members.
    pub(crate) members: usize,
    /// The address of this node, if it is a member.
    pub(crate) here: Option<Address>,
    pub(crate) routes: Box<[Route]>,
}

impl Table {
    /// Creates the table from the known holdings. `peer` returns the connections to an address.
    pub(crate) fn new(ownership: &Ownership, peer: impl Fn(&Address) -> Arc<Peer>) -> Self {
        let mut peers: Vec<Arc<Peer>> = ownership.members.iter().map(&peer).collect();
        let here = ownership.me.as_ref().map(|me| me.address.clone());
        let here = here.filter(|here| ownership.members.contains(here));
        let mut route = |partition: usize| {
            let known = &ownership.known[partition];
            if ownership.is_held(partition) {
                let holding = Arc::clone(&known.holding);
                return Route::Here(Arc::new(Incoming { holding, since: known.since }));
            }
            let holder = known.holding.holder.as_ref().map(|it| &it.address);
            let Some(address) = holder.or_else(|| ownership.list_owner(partition)) else {
                return Route::Unknown;
            };
            let index = peers.iter().position(|it| it.address == *address);
            Route::There(index.unwrap_or_else(|| {
                peers.push(peer(address));
                peers.len() - 1
            }))
        };
        let routes = (0..PARTITIONS).map(&mut route).collect();
        Self { peers: peers.into(), members: ownership.members.len(), here, routes }
    }

    /// Returns the place of a key.
    #[inline]
    pub(crate) fn route(&self, key: &[u8]) -> &Route {
        &self.routes[partition(key)]
    }

    /// Returns whether this node decides a key, in the same term as in `other`.
    pub(crate) fn is_as_in(&self, other: &Self, key: &[u8]) -> bool {
        match (self.route(key), other.route(key)) {
            (Route::Here(one), Route::Here(other)) => one.holding.term == other.holding.term,
            _ => false,
        }
    }

    /// Returns whether an address is in the list.
    pub(crate) fn has_member(&self, address: &Address) -> bool {
        self.peers[..self.members].iter().any(|it| it.address == *address)
    }

    /// Returns the number of partitions that this node holds.
    pub(crate) fn held(&self) -> usize {
        self.routes.iter().filter(|it| matches!(it, Route::Here(_))).count()
    }
}

/// Returns the index of the member that each partition belongs to; `usize::MAX` for an empty list.
pub(crate) fn list_owners(members: &[Address]) -> Vec<usize> {
    let hashes: Vec<u64> = members.iter().map(hash_of).collect();
    (0..PARTITIONS).map(|partition| owner(&hashes, partition)).collect()
}

/// Returns the index of the member with the highest score for a partition.
fn owner(hashes: &[u64], partition: usize) -> usize {
    let score = |index: &usize| mix(hashes[*index] ^ mix(partition as u64 + 1));
    (0..hashes.len()).max_by_key(score).unwrap_or(usize::MAX)
}

/// A stable hash of an address. It is part of the protocol: all nodes must agree.
fn hash_of(address: &Address) -> u64 {
    mix(RuleId::of([&*address.host, &address.port.to_string()]).0)
}

/// The finalizer of `SplitMix64`.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(count: usize) -> Vec<Address> {
        (0..count).map(|number| Address { host: format!("10.0.0.{number}"), port: 7379 }).collect()
    }

    fn owner_of(members: &[Address], partition: usize) -> &Address {
        &members[list_owners(members)[partition]]
    }

    #[test]
    fn every_node_computes_the_same_owners_in_any_order() {
        let members = addresses(7);
        let mut reversed = members.clone();
        reversed.reverse();
        for partition in 0..PARTITIONS {
            assert_eq!(owner_of(&members, partition), owner_of(&reversed, partition));
        }
    }

    #[test]
    fn partitions_are_spread_evenly() {
        for count in [2, 3, 5, 10] {
            let owners = list_owners(&addresses(count));
            let owned: Vec<_> = (0..count).map(|at| owners.iter().filter(|it| **it == at).count()).collect();
            let mean = PARTITIONS / count;
            assert!(owned.iter().all(|it| (mean * 6 / 10..mean * 15 / 10 + 1).contains(it)), "{owned:?}");
        }
    }

    #[test]
    fn only_the_partitions_of_a_member_move_when_it_leaves() {
        let members = addresses(5);
        for partition in 0..PARTITIONS {
            let (old, new) = (owner_of(&members, partition), owner_of(&members[..4], partition));
            assert!(old == new || *old == members[4]);
        }
    }

    #[test]
    fn the_owners_are_part_of_the_protocol() {
        let members = addresses(3);
        let owners = (0..8).map(|at| owner_of(&members, at).host.clone());
        let expected = "10.0.0.2 10.0.0.0 10.0.0.2 10.0.0.2 10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.0";
        assert_eq!(owners.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn an_empty_list_owns_nothing() {
        let empty = Table::new(&Ownership::new(1), Peer::unconnected);
        assert!(matches!(empty.route(b"key"), Route::Unknown));
    }
}
