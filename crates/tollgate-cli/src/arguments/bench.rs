//! Arguments of `bench`.

use std::path::PathBuf;

use clap::Args;

const HELP: &str = "\
Examples:
  tollgate bench http://127.0.0.1:8080/api/v1/search                    100 requests a second for 10 seconds
  tollgate bench https://api.example.com/v1/items --rate 50/s --header 'Authorization: Bearer TOKEN'
  tollgate bench http://127.0.0.1:8080/ --rate 3000/minute --respect    as a client that obeys limits
  tollgate bench http://127.0.0.1:8080/jobs --method POST --body @job.json --header 'Content-Type: application/json'

Requests arrive at their scheduled times, whatever the server does. A latency is measured from the scheduled arrival, so it includes the
wait for a connection (see --connections). The service time is measured from sending.

After a load with refusals, the command sends single requests until one is refused, waits as long as that refusal says, and sends a retry.
It also reports headers that contradict each other. It works with every limiter that sends Retry-After, RateLimit or X-RateLimit headers.

Load only servers that you may load. Exit status: 0, or 1 if a retry was refused or headers contradict each other, 2 if no request had a response.";

/// Loads a URL, and checks what it tells its callers about limits
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Bench {
    /// The URL, with its query
    pub(crate) url: String,
    /// Arrivals, such as 100/s or 3000/minute
    #[arg(long, value_name = "RATE", default_value = "100/s")]
    pub(crate) rate: String,
    /// The time in which requests arrive
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) duration: String,
    /// The most requests that are under way at a time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: u32,
    /// The method [default: GET, or POST with a body]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header of each request. May be given several times
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The body of each request; `@FILE` reads it from a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Obeys limits as tollgate-client does: paces calls, waits and retries
    #[arg(long)]
    pub(crate) respect: bool,
    /// The time for one request
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) timeout: String,
    /// The retries that check Retry-After after the load; 0 sends none
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) checks: u32,
    /// The longest wait that is checked; with --respect, the longest time of a call
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) max_wait: String,
    /// The authority (PEM) that signed the certificate of the server, instead of the public ones
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
