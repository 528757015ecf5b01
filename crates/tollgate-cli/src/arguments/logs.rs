//! How logs are read: the flags of every command that has an argument `logs`.

use clap::Args;

/// How logs are read.
#[derive(Debug, Args)]
pub(crate) struct LogReading {
    /// `combined`, `common`, `json` or `csv`, instead of looking
    #[arg(long, value_name = "FORMAT", help_heading = "Logs", requires = "logs")]
    pub(crate) format: Option<String>,
    /// Which field of JSON, or column of CSV, is what: time, ip, method, path, query, host, user, `api_key`, tenant,
    /// plan, cost, status, header:NAME
    #[arg(long = "field", value_name = "WHAT=NAME", help_heading = "Logs", requires = "logs")]
    pub(crate) fields: Vec<String>,
    /// How many lines of each log are held back to put them in the order of their times
    #[arg(long, value_name = "LINES", help_heading = "Logs", requires = "logs")]
    pub(crate) reorder: Option<usize>,
    /// Of times that do not say theirs: Europe/Berlin, UTC, +02:00
    #[arg(long, value_name = "ZONE", help_heading = "Logs", requires = "logs")]
    pub(crate) timezone: Option<String>,
    /// No progress bar
    #[arg(long, help_heading = "Logs", requires = "logs")]
    pub(crate) quiet: bool,
}
