//! What can be typed after `replay`.

use std::path::PathBuf;

use clap::Args;

use super::logs::LogReading;

const REPLAY_HELP: &str = "\
Examples:
  tollgate replay --policy policy.yaml access.log
  tollgate replay --policy policy.yaml --suggest 1% /var/log/nginx/access.log*      rotated files too, gzip or zstd
  tollgate replay --policy today.yaml --policy tomorrow.yaml access.log             which requests change fate
  tollgate replay --policy policy.yaml --html report.html access.log                one file, to be mailed around
  zcat old.gz | tollgate replay --policy policy.yaml --json -

JSON and CSV, with fields of your own:
  tollgate replay --policy policy.yaml --field time=@timestamp --field ip=client.addr --field user=auth.name app.json
  tollgate replay --policy policy.yaml --format csv --field time=TIMESTAMP --field cost=GeneratedTokens usage.csv

The policy decides as it would have served: same engine, virtual time. Nothing is connected to.
Exit status 0 when the log was read, whatever was refused; 2 when it or a policy cannot be.";

/// Says what a policy would have done
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct Replay {
    /// The policy, settings and all if it has them. Given several times, the others are compared with the first
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) policy: Vec<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the report as one HTML file with pictures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Proposes numbers for each limit that would have refused at most so many of its requests: 1%
    #[arg(long, value_name = "SHARE")]
    pub(crate) suggest: Option<String>,
    /// The same for clients: at most so many of a limit's keys refused at least once. With both, both hold
    #[arg(long, value_name = "SHARE")]
    pub(crate) suggest_clients: Option<String>,
    /// Tells of this limit only. All of them decide nevertheless
    #[arg(long, value_name = "NAME")]
    pub(crate) limit: Option<String>,
    /// How many keys, clients and endpoints the lists name
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) top: u16,
    /// Leaves out what other numbers would have refused, and how far limits are from an exact log: faster
    #[arg(long, conflicts_with_all = ["suggest", "suggest_clients"])]
    pub(crate) totals: bool,
    /// Logs, merged by time: files, plain, gzip or zstd; `-` is standard input
    #[arg(value_name = "LOG", required = true)]
    pub(crate) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: LogReading,
}
