//! `tollgate validate`: checks whether files can be served, and prints lints.
//!
//! Variables and most flags are ignored, because the files are checked, with the files that they name.
//! It makes no connections.
//!
//! The checks are in `configuration` and `tollgate_policy`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use tollgate::policy::Lint;
use tollgate_daemon::Failure;
use tollgate_daemon::configuration::{ConfigWarning, Inputs, LoadPhase};
use tollgate_document::DiagnosticView;

use crate::arguments::Validate;
use crate::output;
use crate::serve::{envoy_config, flag};

/// The result for one file.
struct Verdict {
    name: String,
    /// The number of limits and the warnings, or the mistakes.
    found: Result<(usize, Vec<ConfigWarning>), Failure>,
}

pub(crate) fn run(arguments: &Validate) -> Result<ExitCode, Failure> {
    if let Some(lint) = arguments.explain {
        output::text(&lint.map_or_else(all, |lint| lint.page().to_owned()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let files = arguments.files.iter().cloned().map(Some);
    let files: Vec<_> = if arguments.files.is_empty() { vec![None] } else { files.collect() };
    let (mut mistakes, mut odd) = (false, false);
    for file in files {
        let verdict = verdict(file, arguments);
        match &verdict.found {
            Ok((_, remarks)) => odd |= !remarks.is_empty(),
            Err(_) => mistakes = true,
        }
        if arguments.json {
            output::line(&verdict.json().to_string())?;
        } else {
            verdict.say()?;
        }
    }
    if odd && !arguments.json {
        output::complain(
            "`tollgate validate --explain CODE` says what happens, how to fix it and when to keep it\n",
        );
    }
    Ok(match (mistakes, odd && arguments.strict) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

fn verdict(file: Option<PathBuf>, arguments: &Validate) -> Verdict {
    let capacity = arguments.capacity.as_deref().map(|rate| flag("--capacity", "gateway.capacity", rate));
    let overlays = arguments.envoy_config.as_deref().map(envoy_config).into_iter().chain(capacity);
    let mut inputs = overlays.fold(Inputs::default(), Inputs::with_overlay);
    if let Some(file) = file {
        inputs = inputs.with_config(file);
    }
    if let Some(file) = &arguments.settings {
        inputs = inputs.with_settings(file);
    }
    let found = inputs.load(LoadPhase::First).and_then(|configuration| {
        inputs.pin_envoy_folder(&configuration);
        configuration.check_files()?;
        let allowed = |lint: Lint| arguments.allow.contains(&lint);
        let remarks = configuration.remarks().iter().cloned().filter_map(|it| it.without(allowed)).collect();
        Ok((configuration.policy().limits().len(), remarks))
    });
    Verdict { name: inputs.name(), found }
}

impl Verdict {
    fn say(&self) -> Result<(), Failure> {
        let (count, remarks) = match &self.found {
            Ok(found) => found,
            Err(failure) => {
                output::complain(&failure.to_string());
                return Ok(());
            }
        };
        for remark in remarks {
            output::complain(&format!("{}\n", remark.text()));
        }
        let odd: usize = remarks.iter().map(|it| it.views().len() + it.left_out()).sum();
        let odd = if odd == 0 { String::new() } else { format!(", {}", counted(odd, "warning")) };
        output::line(&format!("{}: {}, no mistakes{odd}", self.name, counted(*count, "limit")))
    }

    fn json(&self) -> Value {
        let each = |views: &[DiagnosticView]| -> Vec<Value> { views.iter().map(one).collect() };
        match &self.found {
            Ok((limits, remarks)) => {
                let views: Vec<_> = remarks.iter().flat_map(ConfigWarning::views).collect();
                let left_out: usize = remarks.iter().map(ConfigWarning::left_out).sum();
                json!({"file": self.name, "valid": true, "limits": limits, "errors": [], "warnings": each(&views),
                    "left_out": left_out})
            }
            Err(failure) => {
                let (views, left_out) = failure.views();
                json!({"file": self.name, "valid": false, "limits": null, "errors": each(views), "warnings": [],
                    "left_out": left_out})
            }
        }
    }
}

fn one(view: &DiagnosticView) -> Value {
    let mut one = json!({"file": view.file, "line": view.at.map(|it| it.0), "column": view.at.map(|it| it.1),
        "message": view.message, "label": view.label, "help": view.help});
    if let (Some(code), Some(members)) = (view.code, one.as_object_mut()) {
        members.insert("code".to_owned(), code.into());
        let others = view.others.iter();
        let others = others.map(|(file, line, column)| json!({"file": file, "line": line, "column": column}));
        members.insert("others".to_owned(), others.collect());
    }
    one
}

fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Lists every code with its summary.
fn all() -> String {
    let widest = Lint::ALL.iter().map(|it| it.code().len()).max().unwrap_or(0);
    let line = |it: &Lint| format!("{:widest$}  {}", it.code(), it.summary());
    Lint::ALL.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"
}
