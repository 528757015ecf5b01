//! What can be typed after `simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::logs::LogReading;

const HELP: &str = "\
Examples:
  tollgate simulate                                        why a fixed window lets twice the limit through
  tollgate simulate --traffic poisson --rate 100/minute --clients 20 --load 1.2
  tollgate simulate --traffic retry-storm --no-jitter --svg herd.svg
  tollgate simulate --traffic steady --load 5 --nodes 4    four nodes that do not know of each other
  tollgate simulate --traffic steady --load 5 --nodes 4 --store outage
  tollgate simulate --log access.log --rate 5/1s --rate 20/60s     how exact each algorithm is on your traffic

Shapes of traffic:
  steady       evenly spaced                                         load 1.5
  edge         bursts at the end of a window and the start of the next
  on-off       on for a window at twice the load, off for as long    load 1.5
  poisson      requests that know nothing of each other
  flash-crowd  a sudden rise to six times the load, and an ebb
  retry-storm  all at once, and again when refused                   load 0.75, 20 clients, by global
  ramp         a slow rise from nothing to twice the load

Algorithms: fixed-window, sliding-window (two counters), sliding-parts (`parts: 7` of a policy), sliding-log (exact: what the others are
measured by), token-bucket, gcra, sliding-strict (`strict: true` of a policy: never more than the rate, some refused early).

Decided by the engine that serves, in virtual time. Redis keeps its own time and so is not asked: `--store shared` is the store in memory,
which decides alike; what the way to Redis costs is not in the numbers.";

/// Puts algorithms side by side
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Simulate {
    /// The shape of the traffic, below [default: edge]
    #[arg(long, value_name = "SHAPE", conflicts_with = "logs")]
    pub(crate) traffic: Option<String>,
    /// The rate to try out, as in a policy; may be given several times [default: 10/minute]
    #[arg(long = "rate", value_name = "RATE")]
    pub(crate) rates: Vec<String>,
    /// Which algorithms, with commas between; `all` of them unless given
    #[arg(long, value_name = "NAMES", default_value = "all", hide_default_value = true)]
    pub(crate) algorithm: String,
    /// How many at once, for token-bucket and gcra
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) burst: Option<u64>,
    /// How many clients
    #[arg(long, value_name = "N", conflicts_with = "logs")]
    pub(crate) clients: Option<u32>,
    /// Whom the limit counts: `ip`, each client; `global`, all together. With --log any word of a policy's `by` [default: ip]
    #[arg(long, value_name = "KEY")]
    pub(crate) by: Option<String>,
    /// How much is asked for, as a multiple of the rate
    #[arg(long, value_name = "FACTOR", conflicts_with = "logs")]
    pub(crate) load: Option<f64>,
    /// How long: 90s, 10m [default: ten windows]
    #[arg(long, value_name = "TIME", conflicts_with = "logs")]
    pub(crate) duration: Option<String>,
    /// Other numbers, other chances; the same number, the same traffic
    #[arg(long, value_name = "N", conflicts_with = "logs")]
    pub(crate) seed: Option<u64>,
    /// Clients that come back do not add chance to their waits
    #[arg(long, help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) no_jitter: bool,
    /// They do not wait as long as they are told, but a second, then two, then four
    #[arg(long, help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) ignore_retry_after: bool,
    /// How often a request is tried in all [default: 10]
    #[arg(long, value_name = "N", help_heading = "Retries", conflicts_with = "logs")]
    pub(crate) attempts: Option<u32>,
    /// How many nodes decide [default: 1]
    #[arg(long, value_name = "N", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) nodes: Option<u32>,
    /// Where nodes count: `memory`, each for itself; `shared`, in one place; `outage`, one place that does not answer [default: memory]
    #[arg(long, value_name = "STORE", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) store: Option<String>,
    /// Which node a request goes to [default: round-robin]
    #[arg(long, value_name = "HOW", help_heading = "Nodes", conflicts_with = "logs")]
    pub(crate) routing: Option<Route>,
    /// A log instead of a shape, plain, gzip or zstd; `-` is standard input. May be given several times
    #[arg(long = "log", id = "logs", value_name = "FILE", help_heading = "Logs")]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogReading,
    /// How many keys each algorithm has room for
    #[arg(long, value_name = "N", help_heading = "Logs", requires = "logs", default_value_t = 262_144,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) max_keys: u32,
    /// Prints everything as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Draws into a file, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) svg: Option<PathBuf>,
    /// Draws into a file, as PNG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) png: Option<PathBuf>,
    /// What is drawn: `window`, how much was let through in the last window; `arrivals`, what comes and goes
    #[arg(long, value_name = "WHAT", help_heading = "Output")]
    pub(crate) chart: Option<Picture>,
}

/// Which node a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Route {
    /// The next one
    RoundRobin,
    /// Always the same for a client
    Sticky,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// How much was let through in the last window
    Window,
    /// What comes and goes
    Arrivals,
}
