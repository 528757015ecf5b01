//! What watching costs a request: the same checks with nobody watching and with a watcher.
//!
//! `cargo run --release -p tollgate-watch --example watching_cost`

use tollgate::{Call, Clock as _, Limiter, SystemClock};
use tollgate_watch::{WatchSettings, Watcher};

const ROUNDS: u64 = 2_000_000;
const POLICY: &str = "limits: [{name: api, by: ip, bucket: 1000000000/second}]";

/// Nanoseconds for each check, the best of five runs.
fn cost(limiter: &Limiter) -> u64 {
    let (clock, call) = (SystemClock::new(), Call::new("GET", "/api/v1/search").ip([203, 0, 113, 9]));
    let run = |_| {
        let begun = clock.now();
        for _ in 0..ROUNDS {
            std::hint::black_box(limiter.check(std::hint::black_box(&call)).is_allowed());
        }
        clock.now().since(begun).as_micros() * 1000 / ROUNDS
    };
    (0..5).map(run).min().unwrap_or(0)
}

fn main() -> Result<(), tollgate::PolicyError> {
    let limiter = Limiter::from_policy(POLICY)?;
    let alone = cost(&limiter);
    let watched = cost(&limiter.clone().with_observer(Watcher::new(&WatchSettings::default())));
    println!("a check of one limit: {alone} ns, watched {watched} ns");
    Ok(())
}
