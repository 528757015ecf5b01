//! Arguments of the commands that call a running Tollgate.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The default URL of the API.
pub(crate) const DEFAULT_API: &str = "http://127.0.0.1:7070";

const API_HELP: &str = "\
The API of a running Tollgate, http:// or https://; also TOLLGATE_API. The token, if it wants one, is \
TOLLGATE_TOKEN [default: http://127.0.0.1:7070]";

/// The URL of a server, and the certificates for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArguments {
    /// The API of a running Tollgate.
    #[arg(id = "api", long, value_name = "URL", help = API_HELP, help_heading = "Server")]
    pub(crate) url: Option<String>,
    /// The CA of the server's certificate, in PEM; also `TOLLGATE_CA` [default: the public authorities]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) ca: Option<PathBuf>,
    /// The client certificate, in PEM; also `TOLLGATE_CERT`
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) cert: Option<PathBuf>,
}

/// The server to call.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// Prints the response as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The key of that certificate, in PEM; also `TOLLGATE_KEY`
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) key: Option<PathBuf>,
}

/// The attributes of a request that a policy reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct Caller {
    /// The client's address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<String>,
    /// The user that is logged in
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The API key of the program
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// The tenant of the caller
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// The plan of the caller
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
    /// The requested host
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// A header of the request. May be given several times
    #[arg(long = "header", value_name = "NAME:VALUE")]
    pub(crate) headers: Vec<String>,
    /// The cost of the request [default: as in the limits]
    #[arg(long, value_name = "N")]
    pub(crate) cost: Option<u64>,
}

/// Asks about a request
#[derive(Debug, Args)]
#[command(
    override_usage = "tollgate check [OPTIONS] [METHOD] PATH",
    after_help = "\
Examples:
  tollgate check /api/v1/search --ip 203.0.113.9
  tollgate check POST /api/v1/login --ip 203.0.113.9 --user ann
  tollgate check /api/v1/posts --api-key k-123 --header 'X-Plan: pro' --cost 5 --json

Exit status 0 if it is allowed, 1 if it is refused, 2 without a response."
)]
pub(crate) struct Check {
    /// The request; GET unless a method is given
    #[arg(value_names = ["METHOD", "PATH"], num_args = 1..=2, required = true)]
    pub(crate) request: Vec<String>,
    #[command(flatten)]
    pub(crate) caller: Caller,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Explains a decision
#[derive(Debug, Args)]
#[command(
    override_usage = "tollgate explain [OPTIONS] ID\n       tollgate explain [OPTIONS] [METHOD] PATH\n       tollgate explain [OPTIONS] --bucket ENTRIES",
    after_help = "\
ID is the value of the header Tollgate-Decision; the whole line works too.
With a path: explains the decision that such a request would get now. Nothing is spent.
With a bucket of Envoy's quota service: explains why each Envoy has its part of the limit.

Examples:
  tollgate explain 00c0ffee00c0ffee
  tollgate explain 'Tollgate-Decision: 00c0ffee00c0ffee'
  tollgate explain POST /api/v1/login --ip 203.0.113.9 --user ann
  tollgate explain --bucket 'name=search, tenant=acme'

Exit status 0 if it is explained, 1 if such a request would be refused, 2 without a response or
if the id is unknown."
)]
pub(crate) struct Explain {
    /// The id of a decision, or a request: GET unless a method is given
    #[arg(value_name = "ID or PATH", num_args = 1..=2, required_unless_present = "bucket")]
    pub(crate) subject: Vec<String>,
    /// The entries of a bucket: `name=search, tenant=acme`
    #[arg(long, value_name = "ENTRIES", conflicts_with = "subject")]
    pub(crate) bucket: Option<String>,
    /// The domain of the bucket, if several domains have it
    #[arg(long, requires = "bucket")]
    pub(crate) domain: Option<String>,
    #[command(flatten)]
    pub(crate) caller: Caller,
    #[command(flatten)]
    pub(crate) api: Api,
}

const KEY_HELP: &str = "\
KEY has one value for each part of the limit's `by`; none for `by: global`.

Examples:
  tollgate peek demo-search 127.0.0.1            by: ip
  tollgate reset exports acme ann                by: [tenant, user]
  tollgate grant api k-123 --cost 500            returns 500 units to one API key";

/// A key of a limit
#[derive(Debug, Args)]
#[command(after_help = KEY_HELP)]
pub(crate) struct KeyArguments {
    /// The limit's name, as `tollgate serve` prints it
    pub(crate) limit: String,
    /// The key: one value for each part of the limit's `by`
    #[arg(value_name = "KEY", id = "parts")]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// A key of a limit, and an amount
#[derive(Debug, Args)]
#[command(after_help = KEY_HELP)]
pub(crate) struct Amount {
    #[command(flatten)]
    pub(crate) of: KeyArguments,
    /// The number of units
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
}

/// The mode of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Refuses requests over the limit
    Enforce,
    /// Counts and does not refuse
    Shadow,
    /// Neither counts nor refuses
    Off,
    /// Keeps what it has learned: for `shed.node`, `shed.throttle` and limits with `slots: adaptive`
    Frozen,
    /// Follows the policy file: removes the override
    Policy,
}

impl Switch {
    /// Returns the spelling of the API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Frozen => "frozen",
            Self::Policy => "policy",
        }
    }
}

/// Shows or changes modes
#[derive(Debug, Args)]
#[command(
    override_usage = "tollgate mode [OPTIONS]\n       tollgate mode [OPTIONS] MODE LIMIT...\n       tollgate mode [OPTIONS] MODE --all",
    after_help = "\
Examples:
  tollgate mode                                         the current overrides
  tollgate mode shadow search --reason 'INC-1234'       keeps counting, does not refuse
  tollgate mode policy search                           the mode of the policy file
  tollgate mode off --all                               no limit counts or refuses; a deny list does
  tollgate mode policy --all                            removes every override

An override takes effect at once and survives reloads; with a state directory (`state:`) restarts too.
`tollgate changes` lists the changes. On a terminal, a change that weakens protection needs
confirmation."
)]
pub(crate) struct Mode {
    /// The new mode; without it, shows the current modes
    #[arg(id = "mode", value_name = "MODE")]
    pub(crate) to: Option<Switch>,
    /// The names of the limits
    #[arg(value_name = "LIMIT")]
    pub(crate) limits: Vec<String>,
    /// Changes the mode of everything
    #[arg(long, requires = "mode", conflicts_with = "limits")]
    pub(crate) all: bool,
    /// The reason, shown by `tollgate changes`
    #[arg(long, value_name = "TEXT", requires = "mode")]
    pub(crate) reason: Option<String>,
    /// Your name, shown by `tollgate changes` [default: the login name]
    #[arg(long = "as", value_name = "NAME", requires = "mode")]
    pub(crate) by: Option<String>,
    /// Does not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Shows the recorded changes
#[derive(Debug, Args)]
#[command(
    after_help = "Newest first. The server keeps the last 1,000, over restarts with a state directory (`state:`)."
)]
pub(crate) struct Changes {
    /// The maximum number of changes
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) most: Option<usize>,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Asks a running server, without further arguments
#[derive(Debug, Args)]
pub(crate) struct Listing {
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Shows live activity
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q quits, tab and arrows (or j, k) move, enter explains a decision or shows a limit,
/ filters, s sorts, p pauses, ? helps.
With --once, or if the output is not a terminal: prints a snapshot, and exits.

Examples:
  tollgate top
  tollgate top --once
  tollgate top --json | jq .overview.totals
  tollgate top --api https://tollgate.example:7070 --ca ca.pem")]
pub(crate) struct Top {
    /// Prints a snapshot, and exits
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Lists past decisions
#[derive(Debug, Args)]
#[command(after_help = "\
The newest last. With `records: {dir: …}` in the policy, the server keeps refusals for days and over
restarts; without it, in memory. `tollgate explain ID` explains one of them.
--dir reads the folder of a server that is not running, or of another one.

Examples:
  tollgate decisions --since 2h
  tollgate decisions --since 7d --limit login --key 203.0.113.9
  tollgate decisions --since 2026-11-17T02:00:00Z --until 2026-11-17T03:00:00Z --json
  tollgate decisions --dir /var/lib/tollgate/records --since 1d")]
pub(crate) struct Decisions {
    /// From here: how long ago, such as 2h, or a date [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Up to here: how long ago, or a date
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only decisions about this key or address, as they are shown, or about a tag
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only decisions by this limit
    #[arg(long, value_name = "NAME")]
    pub(crate) limit: Option<String>,
    /// Only refusals, without the sample of admitted requests
    #[arg(long)]
    pub(crate) refused: bool,
    /// The maximum number of decisions, the latest ones
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) most: u64,
    /// Reads this folder of `records` instead of asking a server
    #[arg(long, value_name = "DIR", conflicts_with_all = ["api", "ca", "cert", "cert_key"])]
    pub(crate) dir: Option<PathBuf>,
    /// Prints the response as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// The key of that certificate, in PEM; also `TOLLGATE_KEY`
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) cert_key: Option<PathBuf>,
}
