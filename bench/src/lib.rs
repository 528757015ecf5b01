//! Benchmarks of Tollgate and its peers, measured side by side in one run.
//!
//! - [`subject`]: the measured libraries, one file each.
//! - [`case`]: the workloads.
//! - [`contest`]: rounds in turns, so that noise affects all subjects.
//! - [`stream`], [`zipf`]: the keys, in the order of requests.
//! - [`service`]: the protocols of other services, over RESP, HTTP and gRPC.
//! - [`sample`]: results of loading a server, round by round.
//! - [`gateway`]: whole proxies, with their own load.
//! - [`redis`]: decisions in Redis, against one plain call per decision.
//! - [`fleet`]: unit leases, against the in-memory store and against one call per decision.
//! - [`queue`]: the delays of a queue, compared with those of nginx.
//! - [`overload`]: a service at four times its capacity, behind Tollgate and behind Envoy.
//! - [`pool`]: a service with a database pool under overload, with and without a ceiling before the pool.
//! - [`growth`]: cost per decision as keys, limits and connections grow.
//! - [`replay`]: a log replayed against a policy, compared with a program that only counts it.
//! - [`server`], [`process`], [`cores`]: running programs, their kernel statistics, and their cores.
//! - [`callgrind`], [`heap`], [`stopwatch`]: instructions, bytes, time.
//! - [`command_line`] reads arguments.
//! - [`report`]: the table, the JSON, the bars.
//!
//! Not here: pass or fail. Timing never decides a test; the bars are printed.

pub mod callgrind;
pub mod case;
pub mod command_line;
pub mod contest;
pub mod cores;
pub mod fleet;
pub mod gateway;
pub mod growth;
pub mod heap;
pub mod overload;
pub mod pool;
pub mod process;
pub mod queue;
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
