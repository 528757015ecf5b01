//! What can be typed, and the help that teaches it.
//!
//! Not here: what it means. Values are taken as they were typed; `configuration`
//! reads them, with the same messages as for a file.

mod api;
mod logs;
mod replay;
mod simulate;
mod test;
mod validate;

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) use api::{
    Amount, Api, Caller, Changes, Check, DEFAULT_API, Explain, KeyArguments, Mode, Switch, Top,
};
pub(crate) use logs::LogReading;
pub(crate) use replay::Replay;
pub(crate) use simulate::{Picture, Route, Simulate};
pub(crate) use test::Test;
pub(crate) use validate::Validate;

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

Before it is enforced:
  tollgate replay --policy policy.yaml access.log  what it would have done to yesterday's traffic, and to whom
  tollgate simulate                                why a fixed window lets twice its limit through
  tollgate test policy.yaml                        runs policy.test.yaml beside it

At 3 a.m.:
  tollgate top                                     what happens now
  tollgate explain 00c0ffee00c0ffee                why: the id is in the header Tollgate-Decision
  tollgate mode shadow LIMIT                       counts on, and refuses nobody

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
    /// Runs the tests that stand beside a policy, in virtual time
    Test(Test),
    /// Says what a policy would have done to the traffic of an access log, and to whom
    Replay(Replay),
    /// Puts algorithms side by side on one shape of traffic, in numbers and pictures
    Simulate(Simulate),
    /// Turns the configuration of another limiter into a policy, with comments on what differs
    Import(Import),
    /// Asks a running Tollgate to decide about a request, and charges it
    Check(Check),
    /// Shows what a key has left of a limit; charges nothing
    Peek(KeyArguments),
    /// Gives back up to a full allowance, never more than the limit holds
    Grant(Amount),
    /// Gives back what a key was charged last, up to a full allowance
    Refund(Amount),
    /// Lets a key begin anew
    Reset(KeyArguments),
    /// Says why a request was refused, with the arithmetic; or what would happen to one
    Explain(Explain),
    /// Shows what happens, live: traffic, limits, keys, routes, decisions
    Top(Top),
    /// Shows or switches limits, live: enforce, shadow, off, or as the policy says
    Mode(Mode),
    /// Shows who switched what, and when
    Changes(Changes),
    /// Prints the JSON Schema of the policy file, or of its tests, for editors
    #[command(after_help = "\
Examples:
  tollgate schema > policy.schema.json
  tollgate schema --tests > tests.schema.json
and as first line of the policy, for editors with the YAML language server:
  # yaml-language-server: $schema=policy.schema.json")]
    Schema {
        /// Of a file of tests, as `tollgate test` reads it
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
  tollgate serve --envoy-config /etc/ratelimit/config        the files of envoyproxy/ratelimit, as they are
  tollgate serve --set listen.gateway=0.0.0.0:8080 --set log.format=json
  tollgate serve --set 'limits=[{by: ip, bucket: 5/minute}]'

Settings, beside the limits or in a file of their own (--settings):
  listen: {gateway: 127.0.0.1:8080, api: 127.0.0.1:7070, rls: 127.0.0.1:8081, resp: 127.0.0.1:7379}
                                                             `host:port` each, or `off`
  gateway: {upstream: http://127.0.0.1:3000}                 a URL, a list of them, or `demo`
  log: {level: info, format: human}                          error, warn, info, debug; human, json
  admin: {token_file: FILE}                                  what callers of the API must know
  rls: {envoy_config: DIR, headers: all}                     Envoy's files; all, refusals, off
  resp: {password_file: FILE}                                what clients of Redis must know
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
    /// Settings in a file of their own: listen, gateway, rls, resp, store, log, admin, state
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
    /// Where Envoy's rate limit service listens: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_rls: Option<String>,
    /// Where the Redis protocol is spoken: `host:port` or `off`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen_resp: Option<String>,
    /// A folder with configuration files of envoyproxy/ratelimit, used as they are and watched
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
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

/// Turns the configuration of another limiter into a policy
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate import envoy /etc/ratelimit/config/*.yaml > policy.yaml
  tollgate import limitador limits.yaml --output policy.yaml
  nginx -T | tollgate import nginx - > policy.yaml

The files of envoyproxy/ratelimit need not be turned into anything: `tollgate serve --envoy-config DIR` uses them
as they are. What a policy cannot say stands in it as a comment, with the reason.")]
pub(crate) struct Import {
    /// Of which limiter
    pub(crate) from: Foreign,
    /// Its files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Several files of Envoy may share a domain
    #[arg(long)]
    pub(crate) merge: bool,
    /// Where the policy goes, instead of standard output. One that is there already is not touched
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A limiter whose configuration can be turned into a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Foreign {
    /// envoyproxy/ratelimit
    Envoy,
    /// Limitador
    Limitador,
    /// The `limit_req` and `limit_conn` of nginx
    Nginx,
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
