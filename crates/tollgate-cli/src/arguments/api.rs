//! What can be typed after the commands that ask a running Tollgate.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where the API is unless something else is said.
pub(crate) const DEFAULT_API: &str = "http://127.0.0.1:7070";

const API_HELP: &str = "\
The API of a running Tollgate, http:// or https://; also TOLLGATE_API. The token, if it wants one, is \
TOLLGATE_TOKEN [default: http://127.0.0.1:7070]";

/// Which server to ask.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The API of a running Tollgate.
    #[arg(id = "api", long, value_name = "URL", help = API_HELP, help_heading = "Server")]
    pub(crate) url: Option<String>,
    /// Who signs the server's certificate, in PEM; also `TOLLGATE_CA` [default: the public authorities]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate to show to the server, in PEM; also `TOLLGATE_CERT`
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate, in PEM; also `TOLLGATE_KEY`
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) key: Option<PathBuf>,
}

/// Who asks for what, as a limiter sees it.
#[derive(Debug, Args)]
pub(crate) struct Caller {
    /// The client's address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Option<String>,
    /// Who is logged in
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The key the program calls with
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// The customer they belong to
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// The plan they are on
    #[arg(long, value_name = "NAME")]
    pub(crate) plan: Option<String>,
    /// The host that was asked
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// A header of the request. May be given several times
    #[arg(long = "header", value_name = "NAME:VALUE")]
    pub(crate) headers: Vec<String>,
    /// What the request costs [default: what the limits say]
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

Exit status 0 when it is allowed, 1 when it is refused, 2 when nobody could be asked."
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
    override_usage = "tollgate explain [OPTIONS] ID\n       tollgate explain [OPTIONS] [METHOD] PATH",
    after_help = "\
ID is what the header Tollgate-Decision of the answer says; the whole line will do.
With a path: what would happen to such a request now. Nothing is spent.

Examples:
  tollgate explain 00c0ffee00c0ffee
  tollgate explain 'Tollgate-Decision: 00c0ffee00c0ffee'
  tollgate explain POST /api/v1/login --ip 203.0.113.9 --user ann

Exit status 0 when it is explained, 1 when such a request would be refused, 2 when nobody could
be asked or the id is not known (any more)."
)]
pub(crate) struct Explain {
    /// The id of a decision, or a request: GET unless a method is given
    #[arg(value_name = "ID or PATH", num_args = 1..=2, required = true)]
    pub(crate) asked: Vec<String>,
    #[command(flatten)]
    pub(crate) caller: Caller,
    #[command(flatten)]
    pub(crate) api: Api,
}

const KEY_HELP: &str = "\
KEY is what the limit counts by, one value for each word of its `by`; none for `by: global`.

Examples:
  tollgate peek demo-search 127.0.0.1            by: ip
  tollgate reset exports acme ann                by: [tenant, user]
  tollgate grant api k-123 --cost 500            500 of what one API key has spent";

/// A key of a limit
#[derive(Debug, Args)]
#[command(after_help = KEY_HELP)]
pub(crate) struct KeyArguments {
    /// The limit's name, as `tollgate serve` prints it
    pub(crate) limit: String,
    /// The key: one value for each word of the limit's `by`
    #[arg(value_name = "KEY", id = "parts")]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// A key of a limit, and how much
#[derive(Debug, Args)]
#[command(after_help = KEY_HELP)]
pub(crate) struct Amount {
    /// The limit's name, as `tollgate serve` prints it
    pub(crate) limit: String,
    /// The key: one value for each word of the limit's `by`
    #[arg(value_name = "KEY", id = "parts")]
    pub(crate) key: Vec<String>,
    /// How much
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// What a limit can be switched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Refuses what is over the limit
    Enforce,
    /// Counts, and refuses nobody
    Shadow,
    /// Neither counts nor refuses
    Off,
    /// What the policy file says: takes a switch back
    Policy,
}

impl Switch {
    /// As the API spells it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Policy => "policy",
        }
    }
}

/// Shows or switches
#[derive(Debug, Args)]
#[command(
    override_usage = "tollgate mode [OPTIONS]\n       tollgate mode [OPTIONS] MODE LIMIT...\n       tollgate mode [OPTIONS] MODE --all",
    after_help = "\
Examples:
  tollgate mode                                         which are switched
  tollgate mode shadow search --reason 'INC-1234'       counts on, refuses nobody
  tollgate mode policy search                           as the policy file says
  tollgate mode off --all                               no limit counts or refuses; a deny list does
  tollgate mode policy --all                            takes every switch back

A switch holds at once and through reloads; with a state folder (`state:`) through restarts too.
Who switched what is kept: `tollgate changes`. On a terminal, what weakens protection is asked
about first."
)]
pub(crate) struct Mode {
    /// What to switch to; without it, shows what is switched
    #[arg(id = "mode", value_name = "MODE")]
    pub(crate) to: Option<Switch>,
    /// Which limits, by name
    #[arg(value_name = "LIMIT")]
    pub(crate) limits: Vec<String>,
    /// Everything
    #[arg(long, requires = "mode", conflicts_with = "limits")]
    pub(crate) all: bool,
    /// Why, for whoever reads `tollgate changes`
    #[arg(long, value_name = "TEXT", requires = "mode")]
    pub(crate) reason: Option<String>,
    /// Who you are, for the same [default: who is logged in]
    #[arg(long = "as", value_name = "NAME", requires = "mode")]
    pub(crate) by: Option<String>,
    /// Does not ask back
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Shows the journal
#[derive(Debug, Args)]
#[command(
    after_help = "Newest first. The server keeps the last 1,000, through restarts with a state folder (`state:`)."
)]
pub(crate) struct Changes {
    /// Shows at most so many
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) most: Option<usize>,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// Shows what happens
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q quits, tab and arrows (or j, k) move, enter explains a decision or shows a limit,
/ filters, s sorts, p pauses, ? helps.
With --once, or when the output is no terminal: prints how things stand, and ends.

Examples:
  tollgate top
  tollgate top --once
  tollgate top --json | jq .overview.totals
  tollgate top --api https://tollgate.example:7070 --ca ca.pem")]
pub(crate) struct Top {
    /// Prints how things stand, and ends
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) api: Api,
}
