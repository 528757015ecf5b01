//! The owner of each partition: rendezvous hashing of the member list.
//!
//! A partition belongs to the member with the highest score for it. If a member joins or leaves, only
//! its own partitions change their owner. Every node computes the same table from the same list, in
//! any order.

use std::sync::Arc;

use tollgate_core::RuleId;
use tollgate_store::parts::{PARTITIONS, partition};

use crate::peer::Peer;
use crate::settings::Address;

/// The owner of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This node.
    Here,
    /// Another node, by its index in the table.
    There(usize),
    /// The list is empty.
    Unknown,
}

/// The members, and the owners of the partitions.
pub(crate) struct Table {
    /// The members in the order of their addresses.
    pub(crate) peers: Box<[Arc<Peer>]>,
    /// The index of this node, if it is a member.
    pub(crate) here: Option<usize>,
    /// The member that owns each partition.
    owners: Box<[usize]>,
}

impl Table {
    /// Creates the table of a list of members.
    pub(crate) fn new(mut peers: Vec<Arc<Peer>>, here: Option<&Address>) -> Self {
        peers.sort_by(|one, other| one.address.cmp(&other.address));
        peers.dedup_by(|one, other| one.address == other.address);
        let hashes: Vec<u64> = peers.iter().map(|peer| hash_of(&peer.address)).collect();
        let owners = (0..PARTITIONS).map(|partition| owner(&hashes, partition)).collect();
        let here = peers.iter().position(|peer| Some(&peer.address) == here);
        Self { peers: peers.into(), here, owners }
    }

    /// Returns the owner of a key.
    #[inline]
    pub(crate) fn owner(&self, key: &[u8]) -> Owner {
        self.owner_of(partition(key))
    }

    /// Returns the owner of a partition.
    #[inline]
    pub(crate) fn owner_of(&self, partition: usize) -> Owner {
        match self.owners[partition] {
            index if Some(index) == self.here => Owner::Here,
            index if index < self.peers.len() => Owner::There(index),
            _ => Owner::Unknown,
        }
    }

    /// Returns the address of the owner of a partition.
    pub(crate) fn owner_address(&self, partition: usize) -> Option<&Address> {
        self.peers.get(self.owners[partition]).map(|peer| &peer.address)
    }

    /// Returns the number of partitions that this node owns.
    pub(crate) fn owned(&self) -> usize {
        (0..PARTITIONS).filter(|&partition| self.owner_of(partition) == Owner::Here).count()
    }
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

    fn table(members: &[Address], here: usize) -> Table {
        Table::new(members.iter().map(Peer::unconnected).collect(), members.get(here))
    }

    #[test]
    fn every_node_computes_the_same_owners_in_any_order() {
        let members = addresses(7);
        let mut reversed = members.clone();
        reversed.reverse();
        let (one, other) = (table(&members, 0), table(&reversed, 3));
        for partition in 0..PARTITIONS {
            assert_eq!(one.owner_address(partition), other.owner_address(partition));
        }
        let owned = (0..7).map(|here| table(&members, here).owned());
        assert_eq!(owned.sum::<usize>(), PARTITIONS);
    }

    #[test]
    fn partitions_are_spread_evenly() {
        for count in [2, 3, 5, 10] {
            let members = addresses(count);
            let owned: Vec<_> = (0..count).map(|here| table(&members, here).owned()).collect();
            let mean = PARTITIONS / count;
            assert!(owned.iter().all(|it| (mean * 6 / 10..mean * 15 / 10 + 1).contains(it)), "{owned:?}");
        }
    }

    #[test]
    fn only_the_partitions_of_a_member_move_when_it_leaves() {
        let members = addresses(5);
        let (before, after) = (table(&members, 0), table(&members[..4], 0));
        for partition in 0..PARTITIONS {
            let (old, new) =
                (before.owner_address(partition).unwrap(), after.owner_address(partition).unwrap());
            assert!(old == new || *old == members[4]);
        }
    }

    #[test]
    fn the_owners_are_part_of_the_protocol() {
        let members = addresses(3);
        let owners = (0..8).map(|at| table(&members, 0).owner_address(at).unwrap().host.clone());
        let expected = "10.0.0.2 10.0.0.0 10.0.0.2 10.0.0.2 10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.0";
        assert_eq!(owners.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn an_empty_list_owns_nothing() {
        let empty = Table::new(Vec::new(), None);
        assert_eq!(empty.owner(b"key"), Owner::Unknown);
    }
}
