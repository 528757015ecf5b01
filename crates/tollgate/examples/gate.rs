//! A single limit in four lines of Rust.
//!
//! Run it with `cargo run -p tollgate --example gate`.

use tollgate::{Bucket, Gate, QuotaError, Rate};

fn main() -> Result<(), QuotaError> {
    let gate = Gate::new("exports", Bucket::new(Rate::per_hour(5))?.with_burst(2)?);
    for customer in ["ann", "ann", "ann", "bob"] {
        let outcome = gate.take(customer, 1);
        println!("{customer}: {:?}, {} left", outcome.verdict, outcome.remaining);
    }
    Ok(())
}
