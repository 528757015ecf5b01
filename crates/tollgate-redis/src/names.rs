//! The names of keys in Redis.
//!
//! ```text
//! tg1:{48}:9f86d081884c7d65:i\x04\xcb\x00q\t
//! │    │   │                └ the key: tag, length, bytes, for each part (`tollgate_policy::Key`)
//! │    │   └ the ID of the rule; `GET /v1/limits` maps it to a limit
//! │    └ one of 256 partitions: Redis Cluster hashes the text in braces
//! └ the version of this format, after the prefix of the settings if there is one
//! ```
//!
//! The id of an adjustment is kept in a marker beside the key, in the same partition:
//!
//! ```text
//! tg1:{48}:once:00c0ffee00c0ffee0000000000000000
//! ```
//!
//! The partition depends on the key and not on the rule: the states of one caller under several
//! rules, and under the predecessors of a rule, are in one partition and are decided in one call.
//! Partitions divide the 16,384 slots of a cluster evenly, so every node gets its share.
//!
//! Invariant: different rules or keys have different names. The key comes last and is not escaped,
//! so no key can imitate another.

use std::sync::LazyLock;

use tollgate_core::RuleId;
use tollgate_store::AdjustmentId;
pub(crate) use tollgate_store::parts::{PARTITIONS, partition};

/// The version of the format; it increases when the meaning of names or values changes.
const VERSION: &str = "tg1";

/// The number of slots of a Redis Cluster.
const CLUSTER_SLOTS: u16 = 16_384;

/// The hash tag of each partition: the smallest number that Redis Cluster maps into the partition's
/// range of slots.
static HASH_TAGS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let width = usize::from(CLUSTER_SLOTS) / PARTITIONS;
    let mut tags = vec![u32::MAX; PARTITIONS].into_boxed_slice();
    let mut missing = PARTITIONS;
    for number in 0.. {
        let partition = usize::from(slot(number.to_string().as_bytes())) / width;
        if tags[partition] == u32::MAX {
            tags[partition] = number;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

/// Returns the cluster slot of a partition.
pub(crate) fn slot_of(partition: usize) -> u16 {
    slot(HASH_TAGS[partition].to_string().as_bytes())
}

/// Appends the start of a name: version and partition.
fn write_start(prefix: &str, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(VERSION.as_bytes());
    out.extend_from_slice(b":{");
    let mut digits = [0; 10];
    out.extend_from_slice(decimal(HASH_TAGS[partition(key)], &mut digits));
    out.extend_from_slice(b"}:");
}

/// Returns the name of the marker of an adjustment of a key. It does not depend on the rule: a
/// repetition after a reload may be for the rule that replaced it.
pub(crate) fn marker_name(prefix: &str, key: &[u8], id: AdjustmentId) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + 64);
    write_start(prefix, key, &mut name);
    name.extend_from_slice(format!("once:{:032x}", id.0).as_bytes());
    name
}

/// Appends the name of a key.
pub(crate) fn write_name(prefix: &str, rule: RuleId, key: &[u8], out: &mut Vec<u8>) {
    write_start(prefix, key, out);
    for at in 0..16 {
        out.push(b"0123456789abcdef"[(rule.0 >> (60 - 4 * at) & 15) as usize]);
    }
    out.push(b':');
    out.extend_from_slice(key);
}

/// The keys that hold the time of a test, one for each partition.
#[cfg(feature = "test-clock")]
pub(crate) fn test_clocks() -> Vec<String> {
    HASH_TAGS.iter().map(|tag| format!("tollgate-test-clock:{{{tag}}}")).collect()
}

/// The partition of the node registry.
pub(crate) const NODES_PARTITION: usize = 0;

/// The key of the node registry.
pub(crate) fn nodes(prefix: &str) -> String {
    beside_nodes(prefix, "nodes")
}

/// The key of other data about nodes, in the partition of the node registry.
pub(crate) fn beside_nodes(prefix: &str, name: &str) -> String {
    format!("{prefix}{VERSION}:{{{}}}:{name}", HASH_TAGS[NODES_PARTITION])
}

/// The key of the registry of rules, in the partition of the node registry.
pub(crate) fn rules(prefix: &str) -> String {
    format!("{prefix}{VERSION}:{{{}}}:rules", HASH_TAGS[NODES_PARTITION])
}

/// The key of the rules of one version.
pub(crate) fn version_rules(prefix: &str, version: u64) -> String {
    format!("{}:{version:016x}", rules(prefix))
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789"[(number % 10) as usize];
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Returns the slot that Redis Cluster assigns to a hash tag: CRC-16/XMODEM.
fn slot(tag: &[u8]) -> u16 {
    let crc =
        tag.iter().fold(0_u16, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    crc % CLUSTER_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_redis_cluster() {
        // The replies of `CLUSTER KEYSLOT`.
        assert_eq!((slot(b"foo"), slot(b"123456789")), (12182, 12739));
    }

    #[test]
    fn every_partition_has_its_own_range_of_slots() {
        for (partition, tag) in HASH_TAGS.iter().enumerate() {
            assert_eq!(usize::from(slot(tag.to_string().as_bytes())) / 64, partition);
        }
    }

    #[test]
    fn the_format_of_names_is_stable() {
        let mut name = Vec::new();
        write_name("eu.", RuleId(0x9f), b"i\x04\xcb\x00q\t", &mut name);
        assert_eq!(
            String::from_utf8_lossy(&name).replace('\0', "0"),
            "eu.tg1:{48}:000000000000009f:i\x04�0q\t"
        );
    }

    #[test]
    fn a_marker_is_in_the_partition_of_its_key() {
        let (key, mut name) = (b"i\x04\xcb\x00q\t", Vec::new());
        write_name("eu.", RuleId(0x9f), key, &mut name);
        let marker = marker_name("eu.", key, AdjustmentId(0xc0ff_ee00 << 64 | 3));
        assert_eq!(marker[..12], name[..12]);
        assert_eq!(marker, b"eu.tg1:{48}:once:00000000c0ffee000000000000000003");
    }

    #[test]
    fn keys_spread_over_all_partitions() {
        let mut seen = vec![0; PARTITIONS];
        for number in 0..100_000 {
            seen[partition(format!("user-{number}").as_bytes())] += 1;
        }
        assert!(seen.iter().all(|&count| (250..600).contains(&count)), "{seen:?}");
    }
}
