//! A client that stays within the limit of the service it calls.
//!
//! Four tasks share one gate of 20 calls a second. They wait for their turn, so that the service
//! never has to refuse them.
//!
//! Run it with `cargo run -p tollgate --example outbound`.

use std::error::Error;
use std::thread;
use std::time::Duration;

use tollgate::{Bucket, Clock as _, Gate, Rate, Refusal};

const HOST: &str = "api.example.com";

fn main() -> Result<(), Box<dyn Error>> {
    let outbound = Gate::new("outbound", Bucket::new(Rate::per_second(20))?.with_burst(2)?);
    let clock = outbound.store().clock().clone();
    let start = clock.now();
    thread::scope(|scope| {
        for task in 1..=4 {
            let (outbound, clock) = (&outbound, &clock);
            scope.spawn(move || {
                let calls = pollster::block_on(async {
                    for call in 1..=3 {
                        outbound.until_ready(HOST).await?;
                        let elapsed = Duration::from(clock.now().since(start));
                        println!("{elapsed:>10.1?}  task {task} makes call {call}");
                    }
                    Ok::<(), Refusal>(())
                });
                if let Err(refusal) = calls {
                    eprintln!("task {task}: {refusal}");
                }
            });
        }
    });
    // A bounded wait is refused as soon as it is known to be too short.
    match pollster::block_on(outbound.wait(HOST, 2, Duration::from_millis(10))) {
        Ok(_) => println!("two more calls, within 10 ms"),
        Err(refusal) => println!("not two more calls within 10 ms: {refusal}"),
    }
    Ok(())
}
