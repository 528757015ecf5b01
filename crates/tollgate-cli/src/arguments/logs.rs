//! Flags for reading logs, shared by all commands that have an argument `logs`.

use clap::Args;

/// Options for reading logs.
#[derive(Debug, Args)]
pub(crate) struct LogReading {
    /// `combined`, `common`, `json` or `csv`, instead of detection
    #[arg(long, value_name = "FORMAT", help_heading = "Logs", requires = "logs")]
    pub(crate) format: Option<String>,
    /// Maps a field of JSON or a column of CSV: time, ip, method, path, query, host, user, `api_key`,
    /// tenant, plan, cost, status, header:NAME
    #[arg(long = "field", value_name = "WHAT=NAME", help_heading = "Logs", requires = "logs")]
    pub(crate) fields: Vec<String>,
    /// The number of lines of each log that are buffered to sort them by time
    #[arg(long, value_name = "LINES", help_heading = "Logs", requires = "logs")]
    pub(crate) reorder: Option<usize>,
    /// The time zone of times without one: Europe/Berlin, UTC, +02:00
    #[arg(long, value_name = "ZONE", help_heading = "Logs", requires = "logs")]
    pub(crate) timezone: Option<String>,
    /// Shows no progress bar
    #[arg(long, help_heading = "Logs", requires = "logs")]
    pub(crate) quiet: bool,
}
