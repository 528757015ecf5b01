//! The log: on standard error, for people or for machines.

use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;

use crate::configuration::{Level, LogFormat};

/// Starts it. The first call in a process counts.
pub(crate) fn start(level: Level, format: LogFormat) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(level).with_target(false);
    let _ = match format {
        LogFormat::Human => {
            let log = log.with_ansi(io::stderr().is_terminal());
            tracing::subscriber::set_global_default(log.finish())
        }
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().flatten_event(true).finish()),
    };
}
