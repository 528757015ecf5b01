//! Tests of saved usage.

use super::*;
use tollgate::Rule;
use tollgate::store::Check;
use tollgate_testkit::Scratch;

fn policy(bucket: &str) -> Policy {
    Policy::parse(&format!("limits: [{{name: a, by: global, bucket: {bucket}}}]")).unwrap()
}

fn rule(policy: &Policy) -> &Rule {
    &policy.limits()[0].rules()[0]
}

fn remaining<C: Clock>(store: &MemoryStore<C>, rule: &Rule, units: u64) -> u64 {
    store.decide_now(&[Check::new(rule, b"key", units)]).outcomes[0].remaining
}

/// Saves a store whose key has spent 3 units of 10 a day.
fn saved(files: &Scratch) -> (State, Policy) {
    let (state, _) = State::open(files.path()).unwrap();
    let policy = policy("10/day");
    let store = MemoryStore::new(usize::try_from(policy.max_keys()).unwrap());
    assert_eq!(remaining(&store, rule(&policy), 3), 7);
    let mut history = RuleHistory::default();
    assert_eq!(state.write_usage(&store, history.with(&policy)), Ok(1));
    (state, policy)
}

#[test]
fn saved_usage_is_continued_and_carried_over_to_changed_numbers() {
    let files = Scratch::new();
    let (state, policy_before) = saved(&files);
    let read = state.read_usage(&policy_before).unwrap().expect("usage was saved");
    assert_eq!(remaining(&read.store, rule(&policy_before), 0), 7);
    let raised = policy("20/day").carry_over_from_sets(&read.rules);
    assert_eq!(remaining(&read.store, rule(&raised), 0), 17);
}

#[test]
fn a_damaged_or_unknown_file_is_reported_and_ignored() {
    let files = Scratch::new();
    let (state, policy) = saved(&files);
    let path = files.path().join(USAGE_FILE);
    let whole = fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        state.read_usage(&policy).map(|read| read.is_some())
    };
    assert_eq!(read(&whole), Ok(true));
    for length in [0, 5, 8, 40, whole.len() / 2, whole.len() - 1] {
        let said = read(&whole[..length]).unwrap_err();
        assert!(said.contains("is not used: it is damaged") || said.contains("not written"), "{said}");
    }
    for at in (8..whole.len()).step_by(7) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        assert!(read(&flipped).unwrap_err().contains("it is damaged"), "byte {at}");
    }
    let mut newer = whole.clone();
    newer[7] = b'2';
    assert!(read(&newer).unwrap_err().contains("another version of Tollgate"));
    assert!(read(b"something else entirely, that is long enough").unwrap_err().contains("not written by"));
    assert_eq!(read(&whole), Ok(true));
    fs::remove_file(&path).unwrap();
    assert!(matches!(state.read_usage(&policy), Ok(None)));
    fs::create_dir(&path).unwrap();
    assert!(state.read_usage(&policy).is_err());
}

#[test]
fn usage_of_a_store_of_another_size_is_reported_and_ignored() {
    let files = Scratch::new();
    let (state, _) = saved(&files);
    let other = Policy::parse("max_keys: 5000\nlimits: [{name: a, by: global, bucket: 10/day}]").unwrap();
    let said = state.read_usage(&other).map(drop).unwrap_err();
    assert!(said.contains("`max_keys` was another number"), "{said}");
}

#[test]
fn usage_under_more_rules_than_a_registry_takes_is_continued() {
    let files = Scratch::new();
    let (state, _) = State::open(files.path()).unwrap();
    let address = |at: u32| format!("10.{}.{}.{}", at / 40_000, at / 200 % 200, at % 200);
    let overrides: Vec<_> = (0..120_000).map(|at| format!("{}: {}/day", address(at), at + 11)).collect();
    let text =
        format!("limits: [{{name: a, by: ip, bucket: 10/day, overrides: {{{}}}}}]", overrides.join(", "));
    let policy = Policy::parse(&text).unwrap();
    assert!(policy.rule_set().encode().len() > tollgate::policy::MAX_RULE_SET_BYTES);
    let store = MemoryStore::new(usize::try_from(policy.max_keys()).unwrap());
    assert_eq!(remaining(&store, rule(&policy), 3), 7);
    assert_eq!(state.write_usage(&store, RuleHistory::default().with(&policy)), Ok(1));
    let read = state.read_usage(&policy).unwrap().expect("usage was saved");
    assert_eq!(remaining(&read.store, rule(&policy), 0), 7);
}

#[test]
fn usage_that_cannot_be_written_has_a_reason_and_leaves_the_last_file() {
    let files = Scratch::new();
    let (state, policy) = saved(&files);
    let store = MemoryStore::new(10);
    // A directory in the place of the new file.
    fs::create_dir(files.path().join(NEW_USAGE_FILE)).unwrap();
    let said = state.write_usage(&store, &[]).unwrap_err();
    assert!(said.contains("cannot write to"), "{said}");
    assert!(state.read_usage(&policy).unwrap().is_some());
}

#[test]
fn time_that_has_not_passed_is_not_counted() {
    let moment = |boot: &str, uptime, wall| SnapshotTime {
        boot: boot.to_owned(),
        uptime: Timestamp::from_secs(uptime),
        wall: Timestamp::from_secs(wall),
    };
    let before = moment("a", 100, 1_000);
    let since = |now: SnapshotTime| now.since(&before);
    // On one boot, the wall clock does not matter.
    for wall in [0, 1_000, 9_000_000] {
        assert_eq!(since(moment("a", 160, wall)), Span::from_millis(59_990));
    }
    assert_eq!(since(moment("a", 100, 5_000)), Span::ZERO);
    // After a reboot, only the wall clock knows.
    assert_eq!(since(moment("b", 5, 1_300)), Span::from_secs(300));
    assert_eq!(since(moment("b", 500, 900)), Span::ZERO, "it was set back");
    assert_eq!(since(moment("", 160, 1_300)), Span::from_secs(300));
    assert_eq!(parse_uptime("35.09 12.0\n"), Some(Timestamp::from_micros(35_090_000)));
    assert_eq!(parse_uptime(""), None);
    assert_eq!(parse_uptime("x.yz"), None);
}

#[test]
fn the_history_of_rules_is_bounded_and_has_each_once() {
    let mut history = RuleHistory::default();
    for units in 1..=40 {
        history.with(&policy(&format!("{units}/day")));
    }
    assert_eq!(history.with(&policy("30/day")).len(), MAX_RULE_SETS);
    assert_eq!(history.with(&policy("30/day")).last(), Some(&policy("30/day").rule_set()));
}
