//! Tollgate and its peers, measured side by side in one run.
//!
//! - [`subject`]: who is measured. One file each, one trait.
//! - [`case`]: what they are put to.
//! - [`contest`]: rounds in turn, so that noise hits all alike.
//! - [`stream`], [`zipf`]: the keys, in the order they arrive.
//! - [`service`]: the questions that other services ask, over RESP, HTTP and gRPC.
//! - [`sample`]: what loading a whole server came to, round by round.
//! - [`gateway`]: whole servers, with a load of their own.
//! - [`redis`]: decisions that Redis makes, against a plain call for each.
//! - [`replay`]: a log put to a policy, against a program that only counts it.
//! - [`server`], [`process`], [`cores`]: a program that runs, what the kernel knows of it, and where.
//! - [`callgrind`], [`heap`], [`stopwatch`]: instructions, bytes, time.
//! - [`command_line`]: what was asked for.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: judgement. Timing never decides a test; the bars are printed.

pub mod callgrind;
pub mod case;
pub mod command_line;
pub mod contest;
pub mod cores;
pub mod gateway;
pub mod heap;
pub mod process;
pub mod redis;
pub mod replay;
pub mod report;
pub mod sample;
pub mod server;
pub mod service;
pub mod stopwatch;
pub mod stream;
pub mod subject;
pub mod zipf;
