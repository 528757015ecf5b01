//! `tollgate serve`: starts the service, and runs it until it is stopped.
//!
//! ```text
//! read configuration ─► reject mistakes ─► listen ─► ready file, banner ─► wait
//!                                                        │ SIGHUP, changed file: reload
//!                                                        │ SIGTERM, SIGINT: drain, exit; a second one: exit at once
//! ```
//!
//! Sockets and threads are in `surfaces`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate::policy::redacted;
use tollgate::{Clock, Limit, Mode, SystemClock};
use tollgate_http::SharedLimiter;
use tollgate_server::{Access, Api, ModeOverrides, SavedOverrides, Status};
use tollgate_telemetry::Watcher;

use crate::arguments::Serve;
use crate::banner::banner;
use crate::configuration::{
    Configuration, Inputs, LoadPhase, LogFormat, Overlay, Settings, Tokens, Variables, literal,
    shown as path, yaml,
};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};
use crate::logging::Log;
use crate::process_metrics::{ProcessMetrics, Reloads};
use crate::protocols::Protocols;
use crate::ready::ReadyFile;
use crate::record_consumer::{ConsumerCounts, RecordConsumer};
use crate::reload::{Reloader, RunningConfig, Secrets, Watch};
use crate::state::State;
use crate::store::AnyStore;
use crate::surfaces::Surfaces;
use crate::{fd_limit, store};

/// The interval between two polls of the files.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of overrides that the start lists.
const MAX_LISTED_SWITCHES: usize = 10;

pub(crate) fn run(arguments: &Serve, environment: &Environment) -> Result<ExitCode, Failure> {
    let mut inputs = inputs(arguments, environment)?;
    // Before reading, so that a change during the read is detected afterwards.
    let mut watch = Watch::new(inputs.files());
    let mut configuration = inputs.load(LoadPhase::First)?;
    inputs.envoy = Some(configuration.envoy.clone());
    if let (Some(folder), Some(read)) = (&configuration.envoy.path, &configuration.envoy_files) {
        watch.add_folder(folder.clone(), read.looks.clone());
    }
    configuration.warnings.extend(environment.warnings());
    let settings = &configuration.settings;
    let variable = |name| environment.get(name).map(str::to_owned);
    let variables = Variables { admin: variable("ADMIN_TOKEN"), read: variable("READ_TOKEN") };
    let secrets = Secrets::load(settings, &variables, LoadPhase::First)?;
    let log = Log::start(settings.level, settings.format)?;
    fd_limit::allow_most();
    let end = work(arguments, inputs, watch, configuration, secrets, variables, &log);
    // In order with the log, without waiting for a blocked reader.
    let status = end.unwrap_or_else(|failure| {
        log.say(&failure.to_string());
        ExitCode::from(2)
    });
    log.settle();
    Ok(status)
}

/// Runs the service with a loaded configuration, until it ends.
fn work(
    arguments: &Serve,
    inputs: Inputs,
    watch: Watch,
    mut configuration: Configuration,
    secrets: Secrets,
    variables: Variables,
    log: &Log,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(format_args!("cannot start: {}", reason(&error, Attempt::Other))))?;
    runtime.block_on(async {
        // Before the service is reported as ready, because a stop signal may follow immediately.
        let signals = Signals::new()?;
        let watcher = configuration.settings.observing.watched().map(|it| Watcher::new(&it));
        let (redis, outage) = (secrets.redis.clone(), configuration.settings.store.outage());
        let store = store::open(&configuration.policy, redis);
        let limiter = store::limiter(configuration.policy.clone(), &store, &outage, watcher.as_ref());
        let status = Arc::new(Status::new());
        if let Some(redis) = store.redis() {
            status.stored_at(redis.settings().to_string());
        }
        let switches = ModeOverrides::new(limiter.clone());
        let restored =
            configuration.settings.state.as_deref().map(|it| restore(it, &switches)).transpose()?;
        configuration.warnings.extend(restored.flatten());
        // A leftover file would report readiness too early.
        arguments.ready_file.as_deref().map_or(Ok(()), ReadyFile::clear)?;
        let reloads = Arc::new(Reloads::default());
        let told = ConsumerCounts::new(&configuration.settings.observing);
        let (seen, reloaded) = (watcher.clone(), Arc::clone(&reloads));
        let reading = (limiter.clone(), Arc::clone(&store));
        let process_metrics =
            Arc::new(ProcessMetrics::new(reading, seen, reloaded, told.clone(), log.clone()));
        let access = access(&configuration.settings, &secrets.tokens);
        let protocols = Protocols::new(&configuration.settings, &limiter, &secrets);
        process_metrics.speak(protocols.clone());
        let api = api(limiter.clone(), &status, access, &switches, watcher.as_ref(), &process_metrics);
        let api = protocols.clone().answer_json(api);
        let surfaces = Surfaces::open(&configuration, &limiter, &api, protocols, &secrets.tokens)?;
        configuration.warnings.extend(surfaces.warnings().to_vec());
        process_metrics.hold_back_in(surfaces.tarpit());
        let watching =
            RecordConsumer::start(watcher, &configuration.settings, &told, move |now| api.tick(now))?;
        let now = SystemClock::new().now();
        status.loaded(now);
        reloads.worked(now);
        let addresses = surfaces.addresses();
        // Requests are already served, without the store if necessary.
        configuration.warnings.extend(store::connect(&limiter.load(), &store).await.err());
        // Printed before the ready file exists, so that a process that waits for the file finds all
        // messages.
        match configuration.settings.format {
            LogFormat::Human => {
                let limiter = limiter.load();
                log.say(&banner(&inputs, &configuration, limiter.policy(), &addresses));
            }
            LogFormat::Json => {
                let shown = |address: Option<std::net::SocketAddr>| address.map(tracing::field::display);
                let policy = limiter.load();
                let modes = policy.policy().limits().iter().map(Limit::mode);
                let limits = modes.filter(|mode| *mode != Mode::Off).count();
                tracing::info!(
                    gateway = shown(addresses.gateway),
                    api = shown(addresses.api),
                    rls = shown(addresses.rls),
                    resp = shown(addresses.resp),
                    page = addresses.page_url(),
                    store = configuration.settings.store.shown(),
                    limits,
                    "serving"
                );
                configuration.warnings.iter().for_each(|it| warn(it));
            }
        }
        log.settle();
        let ready = arguments.ready_file.as_deref().map(|file| ReadyFile::write(file, &addresses));
        let ready = ready.transpose()?;
        let running = RunningConfig::new(&configuration, secrets, variables);
        let maintenance = tokio::spawn(store::maintain(limiter.clone(), store));
        let reloader = Reloader::new(inputs, switches, Arc::clone(&status), reloads, running);
        let end = serve(surfaces, signals, watch, reloader, &status).await;
        maintenance.abort();
        if let Ok(left) = end {
            let _late = timeout(left, watching.end()).await;
            store::settle_up(&limiter.load(), left).await;
        }
        drop(ready);
        end.map(|_| ExitCode::SUCCESS)
    })
}

/// Logs a printed warning as fields.
fn warn(text: &str) {
    let (code, message, help) = parts(text);
    tracing::warn!(code, help, "{message}");
}

/// Splits a warning into its code, message and help.
fn parts(warning: &str) -> (Option<&str>, &str, Option<&str>) {
    let text = warning.trim().trim_start_matches("warning: ");
    let coded = text.strip_prefix("warning[").and_then(|rest| rest.split_once("]: "));
    let (code, text) = coded.map_or((None, text), |(code, rest)| (Some(code), rest));
    match text.rsplit_once("= help: ") {
        Some((message, help)) => (code, message.trim_end(), Some(help)),
        None => (code, text, None),
    }
}

/// Applies the overrides saved in the state directory, and saves further changes there. Returns a
/// warning about active overrides.
fn restore(folder: &Path, switches: &ModeOverrides<AnyStore>) -> Result<Option<String>, Failure> {
    let (state, saved) = State::open(folder)?;
    if saved != SavedOverrides::default() {
        switches.restore(saved);
    }
    switches.on_change(move |saved, change| state.keep(saved, change));
    let modes = switches.modes();
    let all = (modes.everything() != Mode::Enforce).then(|| {
        let mode = if modes.everything() == Mode::Off { "off" } else { "shadow" };
        format!("everything to {mode}")
    });
    let some = modes.switched().map(|limit| format!("{} to {}", limit.name, limit.switch.word()));
    let back = match (&all, modes.switched().next()) {
        (Some(_), None) => "`tollgate mode enforce --all` removes it",
        (Some(_), Some(_)) => {
            "`tollgate mode enforce --all` takes back what is said of everything, `tollgate mode policy NAME` of a limit"
        }
        (None, _) => "`tollgate mode policy NAME` removes it",
    };
    let switched: Vec<_> = all.into_iter().chain(some).collect();
    let more = switched.len().saturating_sub(MAX_LISTED_SWITCHES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let told = switched.iter().take(MAX_LISTED_SWITCHES).map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok((!switched.is_empty()).then(|| {
        format!(
            "warning: switched by hand, as kept in {}: {told}{more}\n  \
             = help: `tollgate changes` says who and why, {back}\n",
            path(folder)
        )
    }))
}

/// Creates the API with its data sources.
fn api(
    limiter: SharedLimiter<AnyStore>,
    status: &Arc<Status>,
    access: Access,
    switches: &ModeOverrides<AnyStore>,
    watcher: Option<&Watcher>,
    process_metrics: &Arc<ProcessMetrics>,
) -> Api<AnyStore> {
    let (measured, gauged) = (Arc::clone(process_metrics), Arc::clone(process_metrics));
    let api = Api::new(limiter, Arc::clone(status), access)
        .with_clock(SystemClock::new())
        .with_mode_overrides(switches.clone())
        .with_gauges(move || gauged.gauges())
        .with_metrics(move |out| measured.write(out));
    match watcher {
        Some(watcher) => api.with_watcher(watcher.clone()),
        None => api,
    }
}

/// Returns the access rules of the API.
fn access(settings: &Settings, tokens: &Tokens) -> Access {
    let is_guarded = tokens.admin.is_some() || settings.admin.knows_certificates();
    let access = if is_guarded { Access::guarded() } else { Access::open() };
    let access = match &tokens.admin {
        Some(token) => access.with_admin(token.expose()),
        None => access,
    };
    match &tokens.read {
        Some(token) => access.with_reader(token.expose()),
        None => access,
    }
}

/// Waits for events until the service stops. Returns the time that is left for shutdown.
async fn serve(
    mut surfaces: Surfaces,
    mut signals: Signals,
    mut watch: Watch,
    mut reloader: Reloader,
    status: &Status,
) -> Result<Duration, Failure> {
    let mut looks = interval(FILE_POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {
                if watch.has_changed() {
                    reloader.reload("the file has changed");
                }
            }
            () = surfaces.ended() => return Err(Failure::new("nothing listens any more; the log says why")),
            told = signals.next() => match told {
                ProcessSignal::Reload => {
                    watch.reading();
                    reloader.reload("on SIGHUP");
                }
                ProcessSignal::Stop(name) => {
                    tracing::info!("{name}: finishing what runs; a second one ends at once");
                    break;
                }
            }
        }
    }
    status.drain();
    let (clock, patience) = (SystemClock::new(), surfaces.patience());
    let begun = clock.now();
    tokio::select! {
        all_done = surfaces.drain() => if all_done {
            tracing::info!("all done");
        },
        name = signals.next_stop() => {
            tracing::warn!("{name} again: ending at once");
            return Ok(Duration::ZERO);
        }
    }
    Ok(patience.saturating_sub(Duration::from_micros(clock.now().since(begun).as_micros())))
}

/// A signal to the process.
enum ProcessSignal {
    Reload,
    Stop(&'static str),
}

/// Receives signals.
struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(format_args!("cannot listen for signals: {}", reason(&error, Attempt::Other)))
            })
        };
        Ok(Self {
            reload: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            _ = self.reload.recv() => ProcessSignal::Reload,
            _ = self.terminate.recv() => ProcessSignal::Stop("SIGTERM"),
            _ = self.interrupt.recv() => ProcessSignal::Stop("SIGINT"),
        }
    }

    /// Waits for the next stop signal. Ignores reloads, because the service is stopping.
    async fn next_stop(&mut self) -> &'static str {
        loop {
            if let ProcessSignal::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

/// Collects the inputs, the strongest last.
fn inputs(arguments: &Serve, environment: &Environment) -> Result<Inputs, Failure> {
    let file = |typed: &Option<std::path::PathBuf>, variable: &str| {
        typed.clone().or_else(|| environment.get(variable).map(Into::into))
    };
    let mut overlays = environment.overlays();
    overlays.extend(flags(arguments));
    for set in &arguments.set {
        overlays.push(set_flag(set)?);
    }
    Ok(Inputs {
        config: file(&arguments.config, "CONFIG"),
        settings: file(&arguments.settings, "SETTINGS"),
        overlays,
        envoy: None,
    })
}

pub(crate) const COMMAND_LINE: &str = "on the command line";

/// Returns the values of flags that stand for one value of the file.
fn flags(arguments: &Serve) -> Vec<Overlay> {
    // Literal, because addresses on the command line are not YAML.
    let overlay = |flag: &str, path: &str, value: String| Overlay {
        origin: COMMAND_LINE,
        typed: format!("{flag} "),
        path: path.to_owned(),
        value,
    };
    let mut overlays = Vec::new();
    let (gateway, api) = (&arguments.listen_gateway, &arguments.listen_api);
    let (rls, resp) = (&arguments.listen_rls, &arguments.listen_resp);
    for (flag, path, address) in [
        ("--listen-gateway", "listen.gateway", gateway),
        ("--listen-api", "listen.api", api),
        ("--listen-rls", "listen.rls", rls),
        ("--listen-resp", "listen.resp", resp),
    ] {
        if let Some(address) = address {
            overlays.push(overlay(flag, path, literal(address)));
        }
    }
    if let Some(folder) = &arguments.envoy_config {
        overlays.push(envoy_config(folder));
    }
    for (flag, path, values) in
        [("--upstream", "gateway.upstream", &arguments.upstream), ("--store", "store", &arguments.store)]
    {
        match values.as_slice() {
            [] => {}
            [only] => overlays.push(overlay(flag, path, literal(only))),
            several => {
                let several: Vec<_> = several.iter().map(|it| literal(it)).collect();
                overlays.push(overlay(flag, path, format!("[{}]", several.join(", "))));
            }
        }
    }
    overlays
}

/// Returns the overlay for `--envoy-config`.
pub(crate) fn envoy_config(folder: &Path) -> Overlay {
    Overlay {
        origin: COMMAND_LINE,
        typed: "--envoy-config ".to_owned(),
        path: "rls.envoy_config".to_owned(),
        value: literal(&path(folder)),
    }
}

/// Parses `KEY=VALUE` of `--set`.
fn set_flag(text: &str) -> Result<Overlay, Failure> {
    let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.trim().is_empty()) else {
        return Err(Failure::with_help(
            format_args!("`--set {}` sets nothing: it is --set KEY=VALUE", shown(text)),
            "such as --set listen.api=127.0.0.1:0 or --set 'limits=[{by: ip, bucket: 5/minute}]'",
        ));
    };
    Ok(Overlay {
        origin: COMMAND_LINE,
        typed: format!("--set {path}="),
        path: path.trim().to_owned(),
        value: yaml(path.trim(), value),
    })
}

/// Returns the part of an argument that is a name; the rest may be a password.
fn shown(text: &str) -> String {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "_.-[]".contains(char);
    match redacted(text) {
        redacted if redacted == text => match text.find(|char: char| !is_name(char)) {
            Some(at) => format!("{}***", &text[..at]),
            None => redacted,
        },
        redacted => redacted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_parts() {
        assert_eq!(parts("warning: a: b\n  = help: do c\n"), (None, "a: b", Some("do c")));
        assert_eq!(parts("warning: a\n"), (None, "a", None));
        assert_eq!(parts("warning[x-y]: a\n  = help: do c\n"), (Some("x-y"), "a", Some("do c")));
        assert_eq!(parts("a"), (None, "a", None));
    }

    #[test]
    fn a_flag_is_a_value_of_the_file() {
        let overlay = set_flag("gateway.upstream=http://a/?b=c").unwrap();
        assert_eq!((&*overlay.path, &*overlay.value), ("gateway.upstream", "http://a/?b=c"));
        for wrong in ["", "listen.api", "=x", " =x"] {
            assert!(set_flag(wrong).unwrap_err().to_string().contains("--set KEY=VALUE"), "{wrong}");
        }
        let said = set_flag("redis://:hunter2@h").unwrap_err().to_string();
        assert!(said.contains("`--set redis://:***@h`"), "{said}");
        for text in ["store.passwd:hunter2", "store:u:hunter2@h", "u:hunter2@h", "store.url hunter2"] {
            let said = set_flag(text).unwrap_err().to_string();
            assert!(!said.contains("hunter") && said.contains("***"), "{text}: {said}");
        }
    }
}
