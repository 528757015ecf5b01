#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! - [`Daemon`]: the running service: its addresses, reload and shutdown.
//! - [`Inputs`], [`configuration`]: where the configuration comes from, and how it is read.
//! - [`Startup`], [`Log`], [`Signals`]: the steps of a process whose only purpose is the service, such
//!   as `tollgate serve`.
//! - [`doctor`]: checks of a set-up.
//! - [`read_decisions`], [`RecordQuery`]: a decision log, without a server.
//! - [`Failure`]: an error report, ready to print.
//!
//! Not here: arguments and output (`tollgate-cli`), decisions (`tollgate`), the protocols
//! (`tollgate-gateway`, `tollgate-server`, `tollgate-rls`, `tollgate-resp`).

mod addresses;
mod api;
mod certificates;
mod config_server;
pub mod configuration;
mod daemon;
pub mod doctor;
mod environment;
mod failure;
mod fd_limit;
mod fleet;
mod http1_api;
mod http_sender;
mod huge_pages;
pub mod io_error;
mod load;
mod logging;
mod outbound_metrics;
mod overload_metrics;
mod plain;
mod process_metrics;
mod protocols;
mod ratelimit;
mod record_consumer;
mod record_log;
mod record_metrics;
mod refusal_log;
mod reload;
mod rule_registry;
mod service_manager;
mod signals;
mod socket_activation;
mod startup;
mod state;
mod store;
mod surfaces;
mod traces;
mod webhook;

pub use addresses::{Addresses, ListenerAddress, machine_name};
pub use configuration::{Configuration, Inputs};
pub use daemon::Daemon;
pub use environment::Environment;
pub use failure::Failure;
pub use fd_limit::allow_most as raise_fd_limit;
pub use huge_pages::use_huge_pages;
pub use logging::Log;
pub use ratelimit::RatelimitVariables;
pub use record_log::read_decisions;
pub use reload::Watch;
pub use signals::Signals;
pub use startup::Startup;
pub use tollgate_records::RecordQuery;
pub use tollgate_server::Book;
