//! What a key is called in Redis.
//!
//! ```text
//! tg1:{48}:9f86d081884c7d65:i\x04\xcb\x00q\t
//! │    │   │                └ the key: tag, length, bytes, for each part (`tollgate_policy::Key`)
//! │    │   └ the rule's id; `GET /v1/limits` says whose
//! │    └ one of 256 partitions: Redis Cluster places a key by what is in braces
//! └ the version of this format, after the prefix of the settings if there is one
//! ```
//!
//! The partition is made of the key and not of the rule: what one caller spends
//! under several rules, and under the predecessors of a rule, lies together and is
//! decided in one call. Partitions share out the 16,384 slots of a cluster evenly,
//! so every node gets its part of them.
//!
//! Invariant: different rules or keys, different names. The key comes last and is
//! taken as it is, so no choice of bytes can imitate another's.

use std::sync::LazyLock;

use tollgate_core::RuleId;

/// Goes up when the meaning of names or values changes.
const VERSION: &str = "tg1";

/// How many partitions there are. Part of the format: never changes within a version.
pub(crate) const PARTITIONS: usize = 256;

/// Slots of a Redis Cluster.
const CLUSTER_SLOTS: u16 = 16_384;

/// What is in the braces, for each partition: the smallest number that Redis
/// Cluster places in its part of the slots.
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

/// The partition that a key lies in.
pub(crate) fn partition(key: &[u8]) -> usize {
    // FNV-1a and a finalizer, stable for ever.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in key {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (hash >> 56) as usize
}

/// The slot of a cluster that a partition lies in.
pub(crate) fn slot_of(partition: usize) -> u16 {
    slot(HASH_TAGS[partition].to_string().as_bytes())
}

/// Appends what a key is called.
pub(crate) fn write_name(prefix: &str, rule: RuleId, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(VERSION.as_bytes());
    out.extend_from_slice(b":{");
    let mut digits = [0; 10];
    out.extend_from_slice(decimal(HASH_TAGS[partition(key)], &mut digits));
    out.extend_from_slice(b"}:");
    for at in 0..16 {
        out.push(b"0123456789abcdef"[(rule.0 >> (60 - 4 * at) & 15) as usize]);
    }
    out.push(b':');
    out.extend_from_slice(key);
}

/// Where a test keeps the time, in every partition.
#[cfg(feature = "test-clock")]
pub(crate) fn test_clocks() -> Vec<String> {
    HASH_TAGS.iter().map(|tag| format!("tollgate-test-clock:{{{tag}}}")).collect()
}

/// The partition in which nodes announce themselves.
pub(crate) const NODES_PARTITION: usize = 0;

/// Where nodes announce themselves.
pub(crate) fn nodes(prefix: &str) -> String {
    format!("{prefix}{VERSION}:{{{}}}:nodes", HASH_TAGS[NODES_PARTITION])
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

/// The slot that Redis Cluster gives to what is in braces: CRC-16/XMODEM.
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
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` answers.
        assert_eq!((slot(b"foo"), slot(b"123456789")), (12182, 12739));
    }

    #[test]
    fn every_partition_has_its_own_part_of_the_slots() {
        for (partition, tag) in HASH_TAGS.iter().enumerate() {
            assert_eq!(usize::from(slot(tag.to_string().as_bytes())) / 64, partition);
        }
    }

    #[test]
    fn the_format_stays_as_it_is() {
        let mut name = Vec::new();
        write_name("eu.", RuleId(0x9f), b"i\x04\xcb\x00q\t", &mut name);
        assert_eq!(
            String::from_utf8_lossy(&name).replace('\0', "0"),
            "eu.tg1:{48}:000000000000009f:i\x04�0q\t"
        );
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
