//! Measures the cost of observing a request: `cargo run --release -p tollgate-telemetry --example
//! cost`.

use std::hint::black_box;

use tollgate::{Call, Clock as _, Limiter, SystemClock};
use tollgate_telemetry::{WatchSettings, Watcher};

const BATCHES: u32 = 1_000;
const BATCH: u32 = 2_000;

/// Returns the nanoseconds per call in the 10th percentile batch, because other programs disturb the
/// slower batches.
fn measure(limiter: &Limiter, traced: bool) -> u64 {
    let clock = SystemClock::new();
    let ask = |round: u32| {
        // A few thousand callers, as on a busy service.
        let address = (round.wrapping_mul(2_654_435_769) >> 20).to_be_bytes();
        let call = Call::new("GET", "/api/v1/search").ip(address);
        let call = if traced { call.header("traceparent", "00-0-0-00") } else { call };
        black_box(limiter.check(&call).is_allowed());
    };
    let mut batches: Vec<_> = (0..BATCHES)
        .map(|batch| {
            let begun = clock.now();
            (batch * BATCH..(batch + 1) * BATCH).for_each(ask);
            clock.now().since(begun).as_micros()
        })
        .collect();
    batches.sort_unstable();
    batches[batches.len() / 10] * 1_000 / u64::from(BATCH)
}

fn main() -> Result<(), tollgate::PolicyError> {
    let one = "limits: [{name: api, by: ip, bucket: 1000000000/s}]";
    let three = "
limits:
  - {name: api, by: ip, bucket: 1000000000/s}
  - {name: route, endpoint: '/api/**', by: ip, bucket: 1000000000/minute}
  - {name: all, by: global, bucket: 1000000000/hour}
";
    let none = "limits: [{name: api, by: ip, bucket: 1/day}]";
    for (what, policy) in [("admitted, one limit", one), ("admitted, three limits", three), ("refused", none)]
    {
        let watched =
            || Ok(Limiter::from_policy(policy)?.with_observer(Watcher::new(&WatchSettings::default())));
        let bare = measure(&Limiter::from_policy(policy)?, false);
        let all = measure(&watched()?, false);
        let traced = measure(&watched()?, true);
        println!("{what}: {bare} ns bare, {all} ns watched, {traced} ns with a trace header");
    }
    Ok(())
}
