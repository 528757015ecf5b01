//! Arguments of `init` and `doctor`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ConfigFiles;

/// Writes a policy to begin with
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate init                                    asks what it is for, and writes policy.yaml
  tollgate init --for gateway
  tollgate init --for envoy /etc/tollgate/policy.yaml

An existing file is not overwritten. `tollgate import` converts the configuration of another limiter.")]
pub(crate) struct Init {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "policy.yaml")]
    pub(crate) file: PathBuf,
    /// The purpose; without it, asks on a terminal
    #[arg(long = "for", value_name = "PURPOSE")]
    pub(crate) purpose: Option<Purpose>,
}

/// The purpose of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// Tollgate in front of a service
    Gateway,
    /// Envoy's rate limit filter asks over gRPC
    Envoy,
    /// nginx or another proxy asks over HTTP
    Nginx,
    /// A service in Rust embeds the library
    Library,
}

/// Checks a set-up before it serves
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate doctor --config policy.yaml
  tollgate doctor --config policy.yaml --set store=redis://10.0.0.5:6379
  tollgate doctor --json | jq '.findings[] | select(.severity != \"ok\")'

It checks the policy, ports, store (version, eviction and clock of Redis), trusted proxies, clock, file limits and
kernel settings of this machine, and changes nothing.
Exit status 0 if it can serve, 1 if a problem was found.")]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) files: ConfigFiles,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
