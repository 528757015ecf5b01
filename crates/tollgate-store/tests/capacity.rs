//! A store that holds as many keys as it is made for.

use tollgate_core::{Bucket, Rate, Rule, Timestamp};
use tollgate_store::{Check, ManualClock, MemoryStore};

#[test]
fn a_full_store_takes_24_bytes_a_key_and_evicts_almost_none() {
    const KEYS: u32 = 200_000;
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let store = MemoryStore::with_seed(KEYS as usize, clock, 7);
    let rule = Rule::new("hourly", Bucket::new(Rate::per_hour(2)).unwrap());
    let take =
        |number: u32| store.decide_now(&[Check::new(&rule, format!("key {number}").as_bytes(), 1)]).admitted;
    let refused = (0..KEYS).filter(|number| !take(*number)).count();
    let usage = store.usage();
    // Three insertions in a million find no room, and start from the usage of another key.
    assert!(usage.evictions <= 5 && refused <= 5, "{refused} refused, {usage:?}");
    assert!(usage.bytes <= 24 * KEYS as usize, "{usage:?}");
    // Every key is found again, in whichever of its lines it is.
    let admitted = (0..KEYS).filter(|number| take(*number)).count();
    assert!(admitted >= KEYS as usize - 500, "{admitted} of the second units were admitted");
    let more = (0..KEYS).filter(|number| take(*number)).count();
    assert_eq!(more, 0, "no key has a third unit");
}
