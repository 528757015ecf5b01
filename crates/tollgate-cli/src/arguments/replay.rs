//! Arguments of `replay`.

use std::path::PathBuf;

use clap::Args;

use super::logs::LogReading;

const REPLAY_HELP: &str = "\
Examples:
  tollgate replay --policy policy.yaml access.log
  tollgate replay --policy policy.yaml --suggest 1% /var/log/nginx/access.log*      rotated files too, gzip or zstd
  tollgate replay --policy today.yaml --policy tomorrow.yaml access.log             which decisions change
  tollgate replay --policy policy.yaml --html report.html access.log                one self-contained file
  zcat old.gz | tollgate replay --policy policy.yaml --json -

JSON and CSV, with custom fields:
  tollgate replay --policy policy.yaml --field time=@timestamp --field ip=client.addr --field user=auth.name app.json
  tollgate replay --policy policy.yaml --format csv --field time=TIMESTAMP --field cost=GeneratedTokens usage.csv

The engine of the server decides, in virtual time. It makes no connections.
Exit status 0 when the log was read, whatever was refused; 2 when the log or a policy is invalid.";

/// Reports what a policy would have done
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct Replay {
    /// The policy, which may include settings. If given several times, the others are compared with the
    /// first
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) policy: Vec<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the report as one HTML file with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Suggests a rate for each limit that would have refused at most this share of its requests: 1%
    #[arg(long, value_name = "SHARE")]
    pub(crate) suggest: Option<String>,
    /// Like `--suggest` for clients: at most this share of a limit's keys refused at least once. With
    /// both flags, both hold
    #[arg(long, value_name = "SHARE")]
    pub(crate) suggest_clients: Option<String>,
    /// Reports only this limit. All limits still decide
    #[arg(long, value_name = "NAME")]
    pub(crate) limit: Option<String>,
    /// The number of keys, clients and endpoints in the lists
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) top: u16,
    /// Skips other rates and the comparison with an exact log: faster
    #[arg(long, conflicts_with_all = ["suggest", "suggest_clients"])]
    pub(crate) totals: bool,
    /// Logs, merged by time: files, plain, gzip or zstd; `-` is standard input
    #[arg(value_name = "LOG", required = true)]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogReading,
}
