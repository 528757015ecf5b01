//! A policy of three lines of YAML, and its decisions.
//!
//! Run it with `cargo run -p tollgate --example policy`.

use tollgate::{Call, Limiter, PolicyError};

const POLICY: &str = "
limits:
  - endpoint: /api/v1/login
    by: ip
    bucket: 3/minute
";

fn main() -> Result<(), PolicyError> {
    let limiter = Limiter::from_policy(POLICY)?;
    for attempt in 1..=4 {
        let decision = limiter.check(&Call::new("POST", "/api/v1/login").ip([203, 0, 113, 9]));
        let Some(limit) = decision.limiting() else { continue };
        let (name, left) = (limit.name(), limit.remaining());
        match decision.retry_after() {
            None => println!("attempt {attempt}: go ahead, {left} left of {name}"),
            Some(wait) => {
                println!("attempt {attempt}: refused by {name}, come back in {wait:.0?}");
            }
        }
    }
    Ok(())
}
