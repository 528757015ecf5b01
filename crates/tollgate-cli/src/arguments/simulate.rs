//! Arguments of `simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::logs::LogReading;

const HELP: &str = "\
Examples:
  tollgate simulate                                        shows that a fixed window admits twice its limit
  tollgate simulate --traffic poisson --rate 100/minute --clients 20 --load 1.2
  tollgate simulate --traffic retry-storm --no-jitter --svg herd.svg
  tollgate simulate --traffic steady --load 5 --nodes 4    four nodes that count separately
  tollgate simulate --traffic steady --load 5 --nodes 4 --store outage
  tollgate simulate --log access.log --rate 5/1s --rate 20/60s     the accuracy of each algorithm on your traffic
  tollgate simulate --overload step                        protections of a service at four times its capacity
  tollgate simulate --overload retry-storm --protection none,adaptive --svg storm.svg
  tollgate simulate --fleet --nodes 8 --rate 10000/second --burst 20000     ways to share a limit between nodes
  tollgate simulate --callers --clients 50 --rate '500/second, burst 50'    clients with and without pacing under one limit

Shapes of traffic:
  steady       evenly spaced                                         load 1.5
  edge         bursts at the end of a window and the start of the next
  on-off       on for a window at twice the load, off for as long    load 1.5
  poisson      independent requests
  flash-crowd  a sudden rise to six times the load, and a decline
  retry-storm  all at once, with retries on refusal                  load 0.75, 20 clients, by global
  ramp         a slow rise from zero to twice the load

Algorithms: fixed-window, sliding-window (two counters), sliding-parts (`parts: 7` of a policy), sliding-log (exact: the reference for
the others), token-bucket, gcra, sliding-strict (`strict: true` of a policy: never more than the rate, with some early refusals);
and, if named, leaky-queue (requests above the rate wait; `--burst` is the length of the queue).

Overloads (with the load as a multiple of the capacity, 4 by default; outside of the overload it is 0.7):
  step                the load rises for half of the time
  square              the load rises three times
  retry-storm         a short overload; callers try up to four times
  retry-storm-budget  the same, with a budget of one retry for ten calls
  slow-upstream       constant load; every call takes longer for half of the time
  slow-dependency     constant load; calls of one route of four take longer, limits are for each route

Ways to share a limit (`--mode` with --fleet): exact (one call to the store for each request), leased (`lease: auto` of a policy), split
(each node has its part of the limit), sync (each node has a copy, which it reconciles every 100 ms; Tollgate has no such mode).

Manners of clients (`--callers`): backoff (exponential, ignores Retry-After), retry-after (waits as long as told), paced (tollgate-client).

Protections: none, rate (a rate limit at 95 % of the capacity), slots (as many as workers, with a queue), adaptive (`slots: adaptive`),
adaptive-classes (the same with `priorities`: critical 10 %, normal 30 %, bulk 60 % of the calls). Callers give up after one second.

The engine of the server decides, in virtual time. Redis has its own clock and is not used: `--store shared` is the memory store,
which decides the same; latency to Redis is not included.";

/// The arguments that only a comparison of algorithms has.
const OF_ALGORITHMS: [&str; 9] =
    ["traffic", "algorithm", "by", "no_jitter", "ignore_retry_after", "attempts", "store", "routing", "logs"];

/// Compares algorithms, protections against overload, ways to share a limit, or manners of clients
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Simulate {
    /// The shape of the traffic, listed below [default: edge]
    #[arg(long, value_name = "SHAPE", conflicts_with = "logs")]
    pub(crate) traffic: Option<String>,
    /// Compares protections of a service in this overload, listed below, instead of algorithms
    #[arg(long, value_name = "SHAPE", help_heading = "Overload", conflicts_with_all = OF_ALGORITHMS,
        conflicts_with_all = ["rates", "burst", "clients", "nodes"])]
    pub(crate) overload: Option<String>,
    /// The protections, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", help_heading = "Overload", requires = "overload")]
    pub(crate) protection: Option<String>,
    /// The workers of the service [default: 32]
    #[arg(long, value_name = "N", help_heading = "Overload", requires = "overload")]
    pub(crate) workers: Option<u32>,
    /// The mean time that a worker needs for a call, up to 500ms [default: 25ms]
    #[arg(long, value_name = "TIME", help_heading = "Overload", requires = "overload")]
    pub(crate) service_time: Option<String>,
    /// Compares the ways in which nodes can share a limit, with traffic of this shape
    #[arg(long, value_name = "SHAPE", num_args = 0..=1, default_missing_value = "poisson", help_heading = "Fleet",
        conflicts_with_all = OF_ALGORITHMS, conflicts_with_all = ["overload", "clients"])]
    pub(crate) fleet: Option<String>,
    /// The modes, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", help_heading = "Fleet", requires = "fleet")]
    pub(crate) mode: Option<String>,
    /// How long a node may hold leased units: `auto`, or a time [default: auto]
    #[arg(long, value_name = "TIME", help_heading = "Fleet", requires = "fleet")]
    pub(crate) lease: Option<String>,
    /// The time from a call to the store to its reply [default: 1ms]
    #[arg(long, value_name = "TIME", help_heading = "Fleet", requires = "fleet")]
    pub(crate) round_trip: Option<String>,
    /// Compares clients that share a limit of a service, by their manners, separated by commas [default: all]
    #[arg(long, value_name = "MANNERS", num_args = 0..=1, default_missing_value = "all", help_heading = "Callers",
        conflicts_with_all = OF_ALGORITHMS, conflicts_with_all = ["overload", "fleet", "nodes", "svg", "chart"])]
    pub(crate) callers: Option<String>,
    /// The rate to try, as in a policy; may be given several times [default: 10/minute]
    #[arg(long = "rate", value_name = "RATE")]
    pub(crate) rates: Vec<String>,
    /// The algorithms, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", default_value = "all", hide_default_value = true)]
    pub(crate) algorithm: String,
    /// The burst of token-bucket and gcra
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) burst: Option<u64>,
    /// The number of clients
    #[arg(long, value_name = "N", conflicts_with = "logs")]
    pub(crate) clients: Option<u32>,
    /// The key of the limit: `ip` for each client, `global` for all together. With --log any word of a
    /// policy's `by` [default: ip]
    #[arg(long, value_name = "KEY")]
    pub(crate) by: Option<String>,
    /// The offered load, as a multiple of the rate; with --overload, of the capacity
    #[arg(long, value_name = "FACTOR", conflicts_with = "logs")]
    pub(crate) load: Option<f64>,
    /// The length of the simulation: 90s, 10m [default: ten windows; with --overload 60s, with --fleet 30s]
    #[arg(long, value_name = "TIME", conflicts_with = "logs")]
    pub(crate) duration: Option<String>,
    /// The seed of the random numbers; the same seed gives the same traffic
    #[arg(long, value_name = "N", conflicts_with = "logs")]
    pub(crate) seed: Option<u64>,
    /// Clients that retry add no jitter to their waits
    #[arg(long, help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) no_jitter: bool,
    /// Clients that retry ignore Retry-After, and wait one second, then two, then four
    #[arg(long, help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) ignore_retry_after: bool,
    /// The maximum number of attempts of a request [default: 10]
    #[arg(long, value_name = "N", help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) attempts: Option<u32>,
    /// The number of nodes [default: 1; with --fleet 4]
    #[arg(long, value_name = "N", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) nodes: Option<u32>,
    /// The store: `memory`, each node for itself; `shared`, one for all; `outage`, a shared one that
    /// does not answer [default: memory]
    #[arg(long, value_name = "STORE", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) store: Option<String>,
    /// The routing of requests to nodes [default: round-robin]
    #[arg(long, value_name = "HOW", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) routing: Option<Route>,
    /// A log instead of generated traffic, plain, gzip or zstd; `-` is standard input. May be given
    /// several times
    #[arg(long = "log", id = "logs", value_name = "FILE", help_heading = "Logs")]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogReading,
    /// The maximum number of keys of each algorithm
    #[arg(long, value_name = "N", help_heading = "Logs", requires = "logs", default_value_t = 262_144,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) max_keys: u32,
    /// Prints the results as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Writes the chart to a file, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) svg: Option<PathBuf>,
    /// Removed. Still parsed, so that scripts that use it get a message that names `--svg`
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "chart.png", hide = true)]
    pub(crate) png: Option<PathBuf>,
    /// The chart: `window`, the requests admitted in the last window; `arrivals`, the requests over
    /// time; with --overload `goodput`, `latency` or `critical`; with --fleet `admitted` or `calls`
    #[arg(long, value_name = "WHAT", help_heading = "Output")]
    pub(crate) chart: Option<Picture>,
}

/// The routing of requests to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Route {
    /// The next one
    RoundRobin,
    /// The same node for each client
    Sticky,
}

/// The chart to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// The requests admitted in the last window
    Window,
    /// The requests over time
    Arrivals,
    /// With --overload: the calls answered in time
    Goodput,
    /// With --overload: the 99th percentile of the latency
    Latency,
    /// With --overload: the share of critical calls that succeeded
    Critical,
    /// With --fleet: the admitted requests
    Admitted,
    /// With --fleet: the calls to the store
    Calls,
}
