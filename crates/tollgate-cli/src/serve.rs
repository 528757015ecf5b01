//! `tollgate serve`: starts the service, and prints its addresses, limits and warnings.
//!
//! The service is in `tollgate_daemon`.

use std::path::Path;
use std::process::ExitCode;

use tollgate::{Limit, Mode};
use tollgate_daemon::configuration::{Inputs, LogFormat, Overlay, literal, shown as path, yaml};
use tollgate_daemon::io_error::Attempt;
use tollgate_daemon::{Daemon, Environment, Failure, ListenerAddress, Log, Signals, Startup, raise_fd_limit};
use tollgate_document::redacted;

use crate::arguments::{ConfigFiles, Serve};
use crate::banner::banner;
use crate::ready_file::ReadyFile;

pub(crate) fn run(arguments: &Serve, environment: &Environment) -> Result<ExitCode, Failure> {
    start(inputs(arguments, environment)?, arguments.ready_file.as_deref())
}

/// Starts the service, and serves until it ends.
pub(crate) fn start(inputs: Inputs, ready_file: Option<&Path>) -> Result<ExitCode, Failure> {
    let startup = Startup::read(inputs)?;
    let log = startup.start_log()?;
    raise_fd_limit();
    let end = work(ready_file, startup, &log);
    // In order with the log, without waiting for a blocked reader.
    let status = end.map_or_else(
        |failure| {
            log.say(&failure.to_string());
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    );
    log.settle();
    Ok(status)
}

/// Runs the service with a loaded configuration, until it ends.
fn work(ready_file: Option<&Path>, startup: Startup, log: &Log) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error, Attempt::Other))?;
    runtime.block_on(async {
        // Before the service is reported as ready, because a stop signal may follow immediately.
        let signals = Signals::listen()?;
        // A leftover file would report readiness too early.
        ready_file.map_or(Ok(()), ReadyFile::clear)?;
        let daemon = startup.start(log).await?;
        daemon.serve_book(tollgate_book::gzip);
        // Printed before the ready file exists, so that a process that waits for the file finds all
        // messages.
        announce(&daemon, log);
        let _ready = ready_file
            .map(|file| ReadyFile::write(file, &daemon.addresses(), daemon.outbound_addresses()))
            .transpose()?;
        daemon.run(signals).await
    })
}

/// Prints or logs the addresses and the warnings of the start.
fn announce(daemon: &Daemon, log: &Log) {
    let (configuration, addresses, policy) = (daemon.configuration(), daemon.addresses(), daemon.policy());
    match configuration.log_format() {
        LogFormat::Human => {
            log.say(&banner(
                daemon.inputs(),
                configuration,
                &policy,
                &addresses,
                daemon.outbound_addresses(),
            ));
        }
        LogFormat::Json => {
            let shown = |address: Option<ListenerAddress>| address.map(tracing::field::display);
            let modes = policy.limits().iter().map(Limit::mode);
            let limits = modes.filter(|mode| *mode != Mode::Off).count();
            tracing::info!(
                gateway = shown(addresses.gateway),
                api = shown(addresses.api),
                rls = shown(addresses.rls),
                resp = shown(addresses.resp),
                page = addresses.page_url(),
                store = configuration.remote_store(),
                limits,
                "serving"
            );
            configuration.warnings().iter().for_each(|it| warn(it));
        }
    }
    log.settle();
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

/// Collects the inputs, the strongest last.
fn inputs(arguments: &Serve, environment: &Environment) -> Result<Inputs, Failure> {
    let mut inputs = Inputs::from_environment(environment);
    if let Some(file) = &arguments.outbound {
        inputs = inputs.with_outbound(file);
    }
    with_files(flags(arguments).into_iter().fold(inputs, Inputs::with_overlay), &arguments.files)
}

/// Adds the files of the configuration and the values of `--set`.
pub(crate) fn with_files(mut inputs: Inputs, files: &ConfigFiles) -> Result<Inputs, Failure> {
    if let Some(file) = &files.config {
        inputs = inputs.with_config(file);
    }
    if let Some(file) = &files.settings {
        inputs = inputs.with_settings(file);
    }
    files.set.iter().try_fold(inputs, |inputs, it| Ok(inputs.with_overlay(set_flag(it)?)))
}

/// Returns the overlay of a flag. The value is literal, because addresses on the command line are not YAML.
pub(crate) fn flag(flag: &str, path: &str, value: &str) -> Overlay {
    overlay(format!("{flag} "), path, literal(value))
}

fn overlay(typed: String, path: &str, value: String) -> Overlay {
    Overlay { origin: "on the command line", typed, path: path.to_owned(), value }
}

/// Returns the values of flags that stand for one value of the file.
fn flags(arguments: &Serve) -> Vec<Overlay> {
    let mut overlays = Vec::new();
    for (name, path, address) in [
        ("--listen-gateway", "listen.gateway", &arguments.listen_gateway),
        ("--listen-api", "listen.api", &arguments.listen_api),
        ("--listen-rls", "listen.rls", &arguments.listen_rls),
        ("--listen-resp", "listen.resp", &arguments.listen_resp),
    ] {
        overlays.extend(address.as_ref().map(|address| flag(name, path, address)));
    }
    overlays.extend(arguments.envoy_config.as_deref().map(envoy_config));
    for (name, path, values) in
        [("--upstream", "gateway.upstream", &arguments.upstream), ("--store", "store", &arguments.store)]
    {
        match values.as_slice() {
            [] => {}
            [only] => overlays.push(flag(name, path, only)),
            several => {
                let several: Vec<_> = several.iter().map(|it| literal(it)).collect();
                overlays.push(overlay(format!("{name} "), path, format!("[{}]", several.join(", "))));
            }
        }
    }
    overlays
}

/// Returns the overlay for `--envoy-config`.
pub(crate) fn envoy_config(folder: &Path) -> Overlay {
    flag("--envoy-config", "rls.envoy_config", &path(folder))
}

/// Parses `KEY=VALUE` of `--set`.
fn set_flag(text: &str) -> Result<Overlay, Failure> {
    let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.trim().is_empty()) else {
        return Err(Failure::with_help(
            format_args!("`--set {}` sets nothing: it is --set KEY=VALUE", shown(text)),
            "such as --set listen.api=127.0.0.1:0 or --set 'limits=[{by: ip, bucket: 5/minute}]'",
        ));
    };
    Ok(overlay(format!("--set {path}="), path.trim(), yaml(path.trim(), value)))
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
