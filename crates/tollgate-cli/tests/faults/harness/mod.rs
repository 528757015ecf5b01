//! One fault from start to end: servers, load, measurements, a row of the table.
//!
//! Two kinds of keys. *Tight* ones have small limits and are spent to the last unit, so
//! that what was admitted can be counted against what was allowed. *Wide* ones never run
//! out, so that each of their requests needs Redis: they show how long decisions take
//! and whose they are.
//!
//! Not here: what breaks (the modules beside).

mod load;
mod report;
mod resp;
mod rig;

pub(crate) use load::{Sample, percentile};
pub(crate) use report::write_row;
pub(crate) use resp::{serves, wait_until_copied, wait_until_it_serves};
pub(crate) use rig::{BINARY, Fault, KEYS, LIMIT, Rig, ServedNode, run, tight_key};
