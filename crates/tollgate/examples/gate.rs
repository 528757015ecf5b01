//! A single limit in four lines of Rust.
//!
//! Run it with `cargo run -p tollgate --example gate`.

use tollgate::{Bucket, Gate, QuotaError, Rate};

fn main() -> Result<(), QuotaError> {
    let exports = Gate::new("exports", Bucket::new(Rate::per_hour(5))?.with_burst(2)?);
    for customer in ["ann", "ann", "ann", "bob"] {
        match exports.check(customer) {
            Ok(admission) => println!("{customer}: exporting, {} left", admission.remaining),
            Err(refusal) => println!("{customer}: {refusal}"),
        }
    }
    Ok(())
}
