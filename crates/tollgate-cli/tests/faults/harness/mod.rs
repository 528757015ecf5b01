//! The harness of a fault: servers, load, measurements, and a row of the table.
//!
//! There are two kinds of keys. *Tight* keys have small limits and are spent completely, so that
//! admissions can be compared with the allowed number. *Wide* keys never run out, so each of their
//! requests needs Redis: they show the latency and the source of decisions.
//!
//! Each fault of Redis runs twice: with tight keys that the store decides for each request, and with one hot key
//! that nodes lease ([`Decided`]).
//!
//! The faults are in the other modules.

mod load;
mod report;
mod resp;
mod rig;

pub(crate) use load::{Sample, percentile};
pub(crate) use report::write_row;
pub(crate) use resp::{serves, wait_until_copied, wait_until_it_serves};
pub(crate) use rig::{BINARY, Decided, Fault, KEYS, LIMIT, Rig, ServedNode, both, run, tight_key};
