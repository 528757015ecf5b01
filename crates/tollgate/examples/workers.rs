//! A pool of worker threads: at most two jobs of a customer run at the same time.
//!
//! A worker waits for a slot of its customer. The permit releases the slot when the job ends, also if
//! the job panics.
//!
//! Run it with `cargo run -p tollgate --example workers`.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tollgate::{Concurrency, Gate, Sleeper};

const WORKERS: usize = 6;
const JOB_DURATION: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let slots = Gate::new("jobs", Concurrency::new(2, Duration::from_secs(60))?);
    let jobs: VecDeque<_> = (1..=4).flat_map(|number| ["ann", "bob"].map(|name| (name, number))).collect();
    let jobs = Mutex::new(jobs);
    let next_job = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for worker in 1..=WORKERS {
            let (slots, next_job) = (&slots, &next_job);
            scope.spawn(move || {
                while let Some((customer, number)) = next_job() {
                    let permit = match pollster::block_on(slots.acquire_when_ready(customer)) {
                        Ok(permit) => permit,
                        Err(refusal) => return eprintln!("worker {worker}: {refusal}"),
                    };
                    let free = slots.peek(customer).remaining;
                    println!("worker {worker}: job {number} of {customer} starts, {free} of 2 slots free");
                    pollster::block_on(Sleeper::default().sleep(JOB_DURATION));
                    drop(permit);
                }
            });
        }
    });
    println!("all jobs are done; {} of 2 slots of ann are free", slots.peek("ann").remaining);
    Ok(())
}
