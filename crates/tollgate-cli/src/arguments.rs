//! What can be typed, and the help that teaches it.
//!
//! Not here: what it means. Values are taken as they were typed; `configuration`
//! reads them, with the same messages as for a file.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

/// Where the API is unless something else is said.
pub(crate) const DEFAULT_API: &str = "http://127.0.0.1:7070";

const HELP: &str = "\
Try it:
  tollgate serve                                   the sample policy, with a demo service behind it
  curl -i http://127.0.0.1:8080/api/v1/search      five a minute; the sixth is refused and says why

Then with a policy of your own, in policy.yaml:
  limits:
    - endpoint: /api/v1/login
      by: ip
      bucket: 10/minute

  tollgate validate policy.yaml
  tollgate serve --config policy.yaml --upstream http://127.0.0.1:3000

Exit status: 0 fine, 1 a finding (such as a refused check), 2 a mistake in usage or configuration.";

/// A rate limiter: gateway, decision service and tools
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = HELP, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves a policy: the gateway, and the API that other programs ask
    Serve(Serve),
    /// Checks a file, and shows each mistake with its line and what was probably meant
    Validate(Validate),
    /// Asks a running Tollgate to decide about a request, and charges it
    Check(Check),
    /// Shows what a key has left of a limit; charges nothing
    Peek(Named),
    /// Gives back up to a full allowance, never more than the limit holds
    Grant(Amount),
    /// Gives back what a key was charged last, up to a full allowance
    Refund(Amount),
    /// Lets a key begin anew
    Reset(Named),
    /// Prints the JSON Schema of the policy file, for editors
    #[command(after_help = "\
Example:
  tollgate schema > policy.schema.json
and as first line of the policy, for editors with the YAML language server:
  # yaml-language-server: $schema=policy.schema.json")]
    Schema,
    /// Prints completions for a shell
    #[command(after_help = "\
Examples:
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

const SERVE_HELP: &str = "\
Examples:
  tollgate serve                                             the sample policy
  tollgate serve --config policy.yaml                        your own; edits are noticed and put in force
  tollgate serve --config policy.yaml --upstream http://127.0.0.1:3000
  tollgate serve --config policy.yaml --store redis://127.0.0.1:6379       one budget for all nodes
  tollgate serve --set listen.gateway=0.0.0.0:8080 --set log.format=json
  tollgate serve --set 'limits=[{by: ip, bucket: 5/minute}]'

Settings, beside the limits or in a file of their own (--settings):
  listen: {gateway: 127.0.0.1:8080, api: 127.0.0.1:7070}     `host:port` each, or `off`
  gateway: {upstream: http://127.0.0.1:3000}                 a URL, a list of them, or `demo`
  log: {level: info, format: human}                          error, warn, info, debug; human, json
  admin: {token_file: FILE}                                  what callers of the API must know
  store: redis://127.0.0.1:6379                              `memory`, a URL of Redis, a list, or {url: …, deadline: 50ms}

What is said twice: --set wins over other flags, flags over TOLLGATE_ variables, those over the file.
A variable is the path in capitals: TOLLGATE_LISTEN_API=127.0.0.1:0, TOLLGATE_GATEWAY_UPSTREAM=demo.
TOLLGATE_CONFIG and TOLLGATE_SETTINGS name the files, TOLLGATE_ADMIN_TOKEN is the token itself.

Reload: SIGHUP, or a change of the file. A file with a mistake changes nothing: the old policy stays,
and the log and /readyz say what is wrong. SIGTERM finishes what runs and ends; a second one ends at once.";

/// Serves a policy
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    /// The policy, and settings too if you like. Without it: the sample policy
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Settings in a file of their own: listen, gateway, store, log, admin, state
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Sets any value of the file, in YAML: --set listen.api=127.0.0.1:0
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Where the gateway listens: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_gateway: Option<String>,
    /// Where the API listens: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_api: Option<String>,
    /// Where the gateway sends what it admits: a URL, or `demo`. May be given several times
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Vec<String>,
    /// Where counts are kept: `memory`, or a URL such as `redis://127.0.0.1:6379`. Several are the
    /// nodes of one cluster
    #[arg(long, value_name = "URL")]
    pub(crate) store: Vec<String>,
    /// Written when everything listens, with the addresses as JSON; removed at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// Checks a file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate validate policy.yaml
  tollgate validate policy.yaml --settings settings.yaml

Exit status 0 when it can be served, warnings or not; 2 when it cannot.")]
pub(crate) struct Validate {
    /// The policy, and settings too if it has them
    #[arg(value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Settings in a file of their own
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
}

const API_HELP: &str = "\
The API of a running Tollgate; also TOLLGATE_API. The token, if it wants one, is TOLLGATE_TOKEN \
[default: http://127.0.0.1:7070]";

/// Which server to ask.
#[derive(Debug, Args)]
pub(crate) struct Api {
    /// The API of a running Tollgate.
    #[arg(long, value_name = "URL", help = API_HELP)]
    pub(crate) api: Option<String>,
    /// Prints the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
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
pub(crate) struct Named {
    /// The limit's name, as `tollgate serve` prints it
    pub(crate) limit: String,
    /// The key: one value for each word of the limit's `by`
    #[arg(value_name = "KEY")]
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
    #[arg(value_name = "KEY")]
    pub(crate) key: Vec<String>,
    /// How much
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
    #[command(flatten)]
    pub(crate) api: Api,
}

/// A mistake in what was typed, with a tip where clap has none: a flag of `serve`
/// without `serve`.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = typed.trim_start_matches("--").split(['=', ' ']).next().unwrap_or_default().to_owned();
    let command = Arguments::command();
    let mut flags = command.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments);
    if error.kind() == ErrorKind::UnknownArgument && flags.any(|it| it.get_long() == Some(&name)) {
        let tip = format!("`--{name}` belongs to a command: tollgate serve --{name} ...");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}
