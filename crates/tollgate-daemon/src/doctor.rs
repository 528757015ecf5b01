//! Checks of a set-up, for `tollgate doctor`: the configuration, and the machine that is to serve it.
//!
//! A check reports a [`Finding`]. Nothing is changed: listeners are opened and closed again, and the
//! store is only read.
//!
//! - `listeners`: the ports. `store`: the server of the counters. `proxies`: the source of client
//!   addresses. `machine`: clock, file limits and kernel settings.
//!
//! Mistakes and lints of the policy are found by `configuration`.

mod listeners;
mod machine;
mod proxies;
mod store;

use serde::Serialize;

use crate::configuration::Inputs;
use crate::startup::Startup;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The check passed.
    Ok,
    /// Worth knowing; it depends on the set-up whether it matters.
    Note,
    /// It serves, and worse than it could.
    Warning,
    /// It does not serve.
    Problem,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check: `policy`, `listen`, `store`, `client`, `clock`, `files`, `kernel`.
    pub topic: &'static str,
    /// The weight.
    pub severity: Severity,
    /// The observation.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

impl Finding {
    fn new(topic: &'static str, severity: Severity, message: impl Into<String>) -> Self {
        Self { topic, severity, message: message.into(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Runs all checks. Needs a Tokio runtime.
///
/// With a mistake in the configuration, only the mistake and the machine are reported.
pub async fn examine(inputs: Inputs) -> Vec<Finding> {
    let name = inputs.name();
    let mut findings = Vec::new();
    match Startup::read(inputs) {
        Err(failure) => findings.push(
            Finding::new("policy", Severity::Problem, failure.to_string().trim_end())
                .help("listeners and the store are checked once this is corrected"),
        ),
        Ok(startup) => {
            let configuration = startup.configuration();
            let limits = configuration.policy().limits().len();
            let limits = if limits == 1 { "1 limit".to_owned() } else { format!("{limits} limits") };
            findings.push(Finding::new("policy", Severity::Ok, format!("{name}: {limits}")));
            let warnings = configuration.warnings().iter().map(|it| it.trim_end());
            findings.extend(warnings.map(|it| Finding::new("policy", Severity::Warning, it)));
            findings.extend(listeners::findings(configuration).await);
            findings.extend(store::findings(startup.secrets.store.as_ref()).await);
            findings.extend(proxies::findings(configuration));
        }
    }
    findings.extend(machine::findings());
    findings
}
