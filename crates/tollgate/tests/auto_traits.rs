//! The public types may move between threads and be shared by them.

use tollgate::policy::Policy;
use tollgate::{
    Admission, Bucket, Call, Decision, Event, Gate, GatePermit, Health, LimitOutcome, Limiter, ManualClock,
    MemoryStore, PendingBatch, Permit, PolicyError, Rate, Receipt, Refusal, Sleeper, Snapshot, StoreError,
    SystemClock,
};

fn is_shared<T: Send + Sync + std::fmt::Debug>() {}

macro_rules! are_shared {
    ($($type:ty),* $(,)?) => {
        $(is_shared::<$type>();)*
    };
}

fn moves<T: Send>(_: &T) {}

#[test]
fn public_types_are_send_sync_and_debug() {
    are_shared!(
        Gate,
        Gate<ManualClock>,
        Admission,
        Refusal,
        Snapshot,
        GatePermit,
        Limiter,
        Permit,
        Decision<'_>,
        LimitOutcome<'_>,
        Receipt,
        Policy,
        PolicyError,
        Health,
        MemoryStore,
        StoreError,
        SystemClock,
        Sleeper,
    );
}

#[test]
fn futures_may_move_between_threads() {
    let limiter = Limiter::from_policy("limits: []").unwrap();
    let gate = Gate::new("gate", Bucket::new(Rate::per_second(1)).unwrap());
    let call = Call::new("GET", "/");
    moves(&limiter.decide(&call));
    moves(&limiter.acquire(&call));
    moves(&limiter.reconcile());
    moves(&PendingBatch::new(&limiter).finish(|_, _| ()));
    moves(&limiter.until_ready(&call));
    moves(&limiter.acquire_when_ready(&call));
    moves(&gate.until_ready("ann"));
    moves(&gate.acquire_when_ready("ann"));
}

/// An event borrows a request of any type, which need not be shared.
#[test]
fn events_have_debug_output() {
    fn has_debug<T: std::fmt::Debug>() {}
    has_debug::<Event<'_, '_>>();
}
