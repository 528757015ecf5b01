//! Model checks of all interleavings on one lot, in small cases. Run by `make test-loom`.

use loom::sync::Arc;

use crate::lot::{Content, Lot, Tick};

const NOW: Tick = Tick::ZERO;

fn content(units: u32, end_us: u64) -> Content {
    Content { units, end: Tick::from_micros(end_us) }
}

/// Runs two threads on a lot with these units, and checks the lot and the return values of the threads.
fn check<A: Send + 'static, B: Send + 'static>(
    units: u32,
    one: fn(&Lot) -> A,
    other: fn(&Lot) -> B,
    holds: fn(A, B, Content),
) {
    loom::model(move || {
        let lot = Arc::new(Lot::new());
        assert!(lot.fill(content(units, 1_000), NOW));
        let theirs = Arc::clone(&lot);
        let thread = loom::thread::spawn(move || other(&theirs));
        let ours = one(&lot);
        let theirs = thread.join().expect("the thread ends");
        holds(ours, theirs, lot.content());
    });
}

fn spend(lot: &Lot) -> u32 {
    lot.take(2, 2, NOW).map_or(0, |(taken, _)| taken.units)
}

#[test]
fn interleavings_of_two_spenders_never_spend_a_unit_twice() {
    check(3, spend, spend, |one, other, left| assert_eq!(one + other + left.units, 3));
}

#[test]
fn interleavings_of_spending_and_putting_back_keep_every_unit() {
    let put_back = |lot: &Lot| {
        let Some((taken, _)) = lot.take(1, 2, NOW) else { return };
        assert!(lot.put_back(taken));
    };
    check(3, spend, put_back, |spent, (), left| assert_eq!(spent + left.units, 3));
}

#[test]
fn interleavings_of_a_new_lease_and_putting_back_never_extend_a_unit() {
    let renew = |lot: &Lot| {
        let old = lot.clear();
        lot.fill(content(5, 9_000), NOW).then_some(old.units)
    };
    let put_back = |lot: &Lot| lot.take(1, 2, NOW).map(|(taken, _)| (taken, lot.put_back(taken)));
    check(3, renew, put_back, |_, _, left| {
        assert!(left.end != Tick::from_micros(9_000) || left.units <= 5);
    });
}

#[test]
fn interleavings_of_clearing_and_spending_return_only_unspent_units() {
    check(
        3,
        spend,
        |lot: &Lot| lot.clear().units,
        |spent, returned, left| {
            assert_eq!(spent + returned + left.units, 3);
        },
    );
}
