//! `tollgate replay`: replays the traffic of a log against a policy.
//!
//! - `input`: opens logs, shows progress.
//! - `text`: the report for terminals.
//!
//! Deciding and counting are in `tollgate_sim::replay`, the HTML page in `tollgate_sim::page`.

pub(crate) mod input;
mod text;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use tollgate::{Limit, Policy};
use tollgate_daemon::configuration::{Inputs, LoadPhase, shown};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::nearest;
use tollgate_document::sanitize::printable;
use tollgate_sim::log::Requests as _;
use tollgate_sim::page;
use tollgate_sim::replay::{Replay, Settings, Share, Suggest};

use crate::arguments;
use crate::output;

pub(crate) fn run(arguments: &arguments::Replay, environment: &Environment) -> Result<ExitCode, Failure> {
    let settings = settings(arguments)?;
    let (policies, notes) = load(arguments)?;
    let mut requests = input::open(&arguments.logs, &arguments.reading)?;
    let mut replay = Replay::new(policies, settings);
    replay.run(&mut requests).map_err(Failure::new)?;
    let tally = requests.tally();
    if let Some(failure) = input::nothing_read(&requests) {
        return Err(failure);
    }
    let mut report = replay.finish(&tally);
    report.notes.extend(notes);
    report.notes.extend(requests.notes());
    if tally.named > 0 {
        report
            .notes
            .push(format!("{} requests have a name in the place of the client's address", tally.named));
    }
    if let Some(path) = &arguments.html {
        output::file(path, &page::html(&report))?;
    }
    if arguments.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(format_args!("the report cannot be written as JSON: {error}")))?;
        output::line(&json)?;
    } else if arguments.html.is_none() {
        let colours = io::stdout().is_terminal() && environment.common("NO_COLOR").is_none();
        output::text(&text::report(&report, text::Style { colours }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the settings of the replay.
fn settings(arguments: &arguments::Replay) -> Result<Settings, Failure> {
    let share = |typed: &Option<String>, flag: &str| {
        let Some(typed) = typed else { return Ok(None) };
        Share::parse(typed).map(Some).ok_or_else(|| {
            Failure::with_help(
                format_args!("`{flag} {}` is not a share", printable(typed)),
                "write it in per cent, from 0% to 100%: 1%, 0.5%",
            )
        })
    };
    Ok(Settings {
        curves: !arguments.totals,
        exactness: !arguments.totals,
        suggest: Suggest {
            requests: share(&arguments.suggest, "--suggest")?,
            clients: share(&arguments.suggest_clients, "--suggest-clients")?,
        },
        top: usize::from(arguments.top),
        limit: arguments.limit.clone(),
    })
}

/// A policy with the name of its file.
type NamedPolicy = (String, Policy);

/// Loads the policies, with notes about their settings.
fn load(arguments: &arguments::Replay) -> Result<(Vec<NamedPolicy>, Vec<String>), Failure> {
    let (mut policies, mut notes, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for path in &arguments.policy {
        let inputs = Inputs::default().with_config(path);
        match inputs.load(LoadPhase::First) {
            Ok(configuration) => {
                if configuration.remote_store().is_some() {
                    notes.push(format!(
                        "{} keeps its counts in Redis: replayed in memory, as one node",
                        shown(path)
                    ));
                }
                policies.push((shown(path), configuration.policy().clone()));
            }
            Err(failure) => failures.push(failure),
        }
    }
    if !failures.is_empty() {
        return Err(Failure::all(&failures));
    }
    if let Some(name) = &arguments.limit {
        let names: Vec<_> =
            policies.iter().flat_map(|(_, policy)| policy.limits()).map(Limit::name).collect();
        if !names.contains(&name.as_str()) {
            let help = nearest(name, names.iter().copied()).map_or_else(
                || format!("there are {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            return Err(Failure::with_help(format_args!("no limit is called `{}`", printable(name)), help));
        }
    }
    Ok((policies, notes))
}
