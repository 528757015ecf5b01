//! Keys: unambiguous, bounded, printable.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use tollgate_policy::{Call, Checks, Key, MAX_PART_BYTES, Policy};

use crate::seeded::seeded;

const SEED: u64 = 0x0070_6f6c_6963_7902;

fn key(policy: &Policy, user: &[u8], tenant: &[u8]) -> Key {
    let call = Call::new("GET", "/").header("x-user-id", user).header("x-tenant-id", tenant);
    let mut checks = Checks::new();
    policy.match_request(&call, &mut checks);
    checks[0].key.clone()
}

fn policy() -> Policy {
    Policy::parse("limits: [{by: [user, tenant], bucket: 1/s}]").unwrap()
}

proptest! {
    #![proptest_config(seeded(SEED, 4_000))]

    #[test]
    fn different_parts_make_different_keys(a in parts(), b in parts()) {
        let policy = policy();
        // Blanks around a header are not part of its value, and an empty value counts as missing.
        let bare = |(user, tenant): &(Vec<u8>, Vec<u8>)| (user.trim_ascii().to_vec(), tenant.trim_ascii().to_vec());
        let same = key(&policy, &a.0, &a.1) == key(&policy, &b.0, &b.1);
        prop_assert_eq!(same, bare(&a) == bare(&b), "seed {:#x}", SEED);
    }

    #[test]
    fn keys_are_bounded_and_printable(user in prop::collection::vec(any::<u8>(), 0..600), tenant in any::<Vec<u8>>()) {
        let key = key(&policy(), &user, &tenant);
        prop_assert!(key.as_bytes().len() <= 2 * (MAX_PART_BYTES + 3));
        let shown = key.display().to_string();
        prop_assert!(shown.len() <= 260 && !shown.chars().any(char::is_control), "{shown} with seed {SEED:#x}");
    }
}

/// Short values over few letters, so that confusable ones are likely.
fn parts() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let letter =
        prop_oneof![Just(b'u'), Just(b't'), Just(1_u8), Just(2_u8), Just(b'-'), Just(b'?'), Just(0_u8)];
    let value = prop_oneof![
        8 => prop::collection::vec(letter, 0..6),
        1 => (120_usize..140).prop_map(|length| vec![b'u'; length]),
    ];
    (value.clone(), value)
}

#[test]
fn a_long_value_is_kept_as_its_digest_and_never_equals_a_short_one() {
    let policy = policy();
    let long = vec![b'x'; MAX_PART_BYTES + 1];
    let kept = key(&policy, &long, b"t");
    assert!(kept.display().to_string().starts_with("sha256:"));
    // A caller that sends the digest itself has a different key.
    let digest = &kept.as_bytes()[2..34];
    assert_ne!(key(&policy, digest, b"t"), kept);
    assert_ne!(key(&policy, &[&long[..], b"y"].concat(), b"t"), kept);
    let whole = key(&policy, &long[1..], b"t");
    assert!(whole.display().to_string().starts_with("xxx"));
}

#[test]
fn a_displayed_key_cannot_move_the_cursor() {
    let shown = key(&policy(), "a\u{1b}[31m\r\n\u{202e}\"b c".as_bytes(), b"\xff\xfe").display().to_string();
    assert_eq!(shown, "a\\u{1b}[31m\\r\\n\\u{202e}\"b c, \u{fffd}\u{fffd}");
}
