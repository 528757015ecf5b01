//! A policy built in Rust, with two limits that apply together.
//!
//! Run it with `cargo run -p tollgate --example builder`.

use tollgate::{Bucket, Call, FixedWindow, KeySource, LimitBuilder, Limiter, Policy, Rate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let per_key = LimitBuilder::new("per-key")
        .endpoint("/api/**")
        .by(KeySource::ApiKey)
        .quota(Bucket::new(Rate::per_second(10))?.with_burst(20)?)
        .quota(FixedWindow::epoch(Rate::per_day(10_000))?);
    let all_callers =
        LimitBuilder::new("all-callers").by(KeySource::Global).quota(Bucket::new(Rate::per_second(2))?);
    let limiter = Limiter::new(Policy::of([per_key, all_callers])?);
    for key in ["one", "two", "three"] {
        let decision = limiter.check(&Call::new("GET", "/api/things").api_key(key));
        println!("{key}: {:?}", decision.fate());
        for limit in decision.limits() {
            println!(
                "  {:<12} {} of {} left",
                limit.name(),
                limit.outcome().remaining,
                limit.outcome().limit
            );
        }
    }
    Ok(())
}
