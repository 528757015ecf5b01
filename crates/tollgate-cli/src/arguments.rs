//! Command-line arguments and their help.
//!
//! Values are kept as typed; `configuration` parses them, with the same messages as for a file.

mod api;
mod bench;
mod logs;
mod replay;
mod setup;
mod simulate;
mod test;
mod validate;

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) use api::{
    Amount, Api, Caller, Changes, Check, DEFAULT_API, Decisions, Explain, KeyArguments, Listing, Mode,
    Switch, Top,
};
pub(crate) use bench::Bench;
pub(crate) use logs::LogReading;
pub(crate) use replay::Replay;
pub(crate) use setup::{Doctor, Init, Purpose};
pub(crate) use simulate::{Picture, Route, Simulate};
pub(crate) use test::Test;
pub(crate) use validate::Validate;

const HELP: &str = "\
Try it:
  tollgate serve                                   the sample policy, with a demo service behind it
  curl -i http://127.0.0.1:8080/api/v1/search      five a minute; the sixth is refused

Then with your own policy:
  tollgate init                                    writes policy.yaml, with comments
  tollgate validate policy.yaml
  tollgate doctor --config policy.yaml             checks ports, store, clock, file limits
  tollgate serve --config policy.yaml --upstream http://127.0.0.1:3000

Before it is enforced:
  tollgate replay --policy policy.yaml access.log  what it would have done to yesterday's traffic
  tollgate simulate                                shows that a fixed window admits twice its limit
  tollgate test policy.yaml                        runs policy.test.yaml beside it

At 3 a.m.:
  tollgate top                                     live activity
  tollgate explain 00c0ffee00c0ffee                by the id in `Tollgate-Decision`
  tollgate mode shadow LIMIT                       keeps counting, and does not refuse

Exit status: 0 success, 1 a finding (such as a refused check), 2 a mistake in usage or configuration.";

/// A rate limiter: gateway, decision service and tools
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = HELP, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes a commented policy to begin with: for the gateway, Envoy, nginx or the library
    Init(Init),
    /// Serves a policy: the gateway, and the API for other programs
    Serve(Serve),
    /// Serves in place of envoyproxy/ratelimit, configured by its environment variables
    #[command(after_help = RATELIMIT_HELP)]
    Ratelimit(Ratelimit),
    /// Checks a file, and shows each mistake with its line and a suggestion
    Validate(Validate),
    /// Runs the tests beside a policy, in virtual time
    Test(Test),
    /// Reports what a policy would have done to the traffic of an access log, and to which clients
    Replay(Replay),
    /// Compares algorithms on generated traffic or a log, in numbers and charts
    Simulate(Box<Simulate>),
    /// Loads a URL, and checks what it tells its callers about limits
    Bench(Bench),
    /// Converts the configuration of another limiter into a policy, with comments on differences
    Import(Import),
    /// Checks ports, store, clock, file limits and kernel settings, and says what to do
    Doctor(Doctor),
    /// Lists the limits that a running Tollgate enforces
    #[command(after_help = "\
Examples:
  tollgate limits
  tollgate limits --json | jq -r '.limits[].name'")]
    Limits(Listing),
    /// Asks a running Tollgate whether it is ready; for health checks of containers
    #[command(after_help = "Exit status 0 if it is ready, 2 if it is not or gives no answer.")]
    Health(Listing),
    /// Asks a running Tollgate to decide about a request, and charges it
    Check(Check),
    /// Shows what a key has left of a limit; charges nothing
    Peek(KeyArguments),
    /// Returns units to a key, up to the full allowance of the limit
    Grant(Amount),
    /// Returns the last charge of a key, up to the full allowance of the limit
    Refund(Amount),
    /// Resets a key to its full allowance
    Reset(KeyArguments),
    /// Explains why a request was refused, with the arithmetic; or what would happen to one
    Explain(Explain),
    /// Lists past decisions: refusals of the last hours and days, by time, key and limit
    Decisions(Decisions),
    /// Shows live traffic, limits, keys, routes and decisions
    Top(Top),
    /// Shows or changes the modes of limits, live: enforce, shadow, off, or as in the policy
    Mode(Mode),
    /// Shows the recorded changes of modes, with author and time
    Changes(Changes),
    /// Prints the JSON Schema of the policy file, or of its tests, for editors
    #[command(after_help = "\
Examples:
  tollgate schema > policy.schema.json
  tollgate schema --tests > tests.schema.json
and as first line of the policy, for editors with the YAML language server:
  # yaml-language-server: $schema=policy.schema.json")]
    Schema {
        /// Prints the schema of test files, as `tollgate test` reads them
        #[arg(long)]
        tests: bool,
    },
    /// Prints completions for a shell
    #[command(after_help = "\
Examples:
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes those of all commands to a directory
    #[command(after_help = "\
Examples:
  tollgate man | man -l -
  tollgate man --dir ~/.local/share/man/man1")]
    Man {
        /// Writes tollgate.1, tollgate-serve.1 and so on to this directory
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

const RATELIMIT_HELP: &str = "\
The binary does the same without arguments if its name is `ratelimit`.

Examples:
  REDIS_URL=redis:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit tollgate ratelimit
  REDIS_URL=redis:6379 CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001 \\
    CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit tollgate ratelimit

It serves gRPC on 8081, /healthcheck and /json on 8080, /rlconfig on 6070, and metrics on PROMETHEUS_ADDR.
TOLLGATE_ variables set everything else, as for `tollgate serve`. docs/envoy-gateway.md lists the variables.";

/// Arguments of `ratelimit`.
#[derive(Args, Debug)]
pub(crate) struct Ratelimit {
    /// Writes the bound addresses as JSON into this file when all listeners are open
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

const SERVE_HELP: &str = "\
Examples:
  tollgate serve                                             the sample policy
  tollgate serve --config policy.yaml                        your own; edits take effect at once
  tollgate serve --config policy.yaml --upstream http://127.0.0.1:3000
  tollgate serve --config policy.yaml --store redis://127.0.0.1:6379       one budget for all nodes
  tollgate serve --envoy-config /etc/ratelimit/config        files of envoyproxy/ratelimit, unchanged
  tollgate serve --outbound services.yaml                    paces calls to other services, under their limits
  tollgate serve --set listen.gateway=0.0.0.0:8080 --set log.format=json
  tollgate serve --set 'limits=[{by: ip, bucket: 5/minute}]'

Settings, in the policy file or in a separate file (--settings):
  listen: {gateway: 127.0.0.1:8080, api: 127.0.0.1:7070, rls: 127.0.0.1:8081, resp: 127.0.0.1:7379}
                                                             `host:port` each, or `off`
  gateway: {upstream: http://127.0.0.1:3000}                 a URL, a list of them, or `demo`
  log: {level: info, format: human}                          error, warn, info, debug; human, json
  admin: {token_file: FILE}                                  the token of the API
  rls: {envoy_config: DIR, headers: all}                     Envoy's files; all, refusals, off
  resp: {password_file: FILE}                                the password of the Redis protocol
  store: redis://127.0.0.1:6379                              `memory`, a URL of Redis or PostgreSQL, a list, or {url: …, deadline: 50ms}

Precedence: --set overrides other flags, flags override TOLLGATE_ variables, variables override the file.
A variable is the path in upper case: TOLLGATE_LISTEN_API=127.0.0.1:0, TOLLGATE_GATEWAY_UPSTREAM=demo.
TOLLGATE_CONFIG and TOLLGATE_SETTINGS name the files, TOLLGATE_ADMIN_TOKEN is the token itself.

Reload: SIGHUP, or a change of the file. A file with a mistake changes nothing: the old policy stays,
and the log and /readyz report the mistake. SIGTERM finishes running requests and exits; a second one exits at once.";

/// The configuration of a server.
#[derive(Debug, Args)]
pub(crate) struct ConfigFiles {
    /// The policy, which may include settings. Default: the sample policy
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A separate file of settings: listen, gateway, outbound, rls, resp, store, log, admin, state, records
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Sets any value of the file, in YAML: --set listen.api=127.0.0.1:0
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Serves a policy
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) files: ConfigFiles,
    /// The address of the gateway: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_gateway: Option<String>,
    /// The address of the API: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_api: Option<String>,
    /// The address of Envoy's rate limit service: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_rls: Option<String>,
    /// The address of the Redis protocol: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_resp: Option<String>,
    /// A directory of envoyproxy/ratelimit configuration files, used unchanged and watched
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
    /// A file with the section `outbound`: services with limits of their own, which workers call through local
    /// addresses. Without --config, these and the API are the only listeners
    #[arg(long, value_name = "FILE")]
    pub(crate) outbound: Option<PathBuf>,
    /// The upstream of the gateway: a URL, or `demo`. May be given several times
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Vec<String>,
    /// The store of the counters: `memory`, or a URL such as `redis://127.0.0.1:6379` or `postgres://USER@HOST`. Several URLs are
    /// the nodes of one cluster
    #[arg(long, value_name = "URL")]
    pub(crate) store: Vec<String>,
    /// A file that is written when all addresses are bound, with the addresses as JSON; removed on exit
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// Converts the configuration of another limiter into a policy
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate import envoy /etc/ratelimit/config/*.yaml > policy.yaml
  tollgate import limitador limits.yaml --output policy.yaml
  nginx -T | tollgate import nginx - > policy.yaml

Files of envoyproxy/ratelimit need no conversion: `tollgate serve --envoy-config DIR` uses them unchanged.
A limit that a policy cannot express becomes a comment, with the reason.")]
pub(crate) struct Import {
    /// The limiter
    pub(crate) from: Foreign,
    /// Its configuration files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Allows several files of Envoy to share a domain
    #[arg(long)]
    pub(crate) merge: bool,
    /// The file for the policy, instead of standard output. An existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A limiter whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Foreign {
    /// envoyproxy/ratelimit
    Envoy,
    /// Limitador
    Limitador,
    /// The `limit_req` and `limit_conn` of nginx
    Nginx,
}

/// Adds a tip for a mistake that clap does not recognize: a flag of `serve` without `serve`.
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
