//! `tollgate validate`: whether a file could be served, and what looks odd in it.
//!
//! Variables and flags are left out: it is the file that is asked about, and the files
//! that it names. Nobody is connected to.

use std::process::ExitCode;

use crate::arguments::Validate;
use crate::configuration::{Inputs, Reading};
use crate::failure::Failure;
use crate::output;
use crate::serve::envoy_config;

pub(crate) fn run(arguments: &Validate) -> Result<ExitCode, Failure> {
    let inputs = Inputs {
        config: arguments.config.clone(),
        settings: arguments.settings.clone(),
        overlays: arguments.envoy_config.as_deref().map(envoy_config).into_iter().collect(),
        envoy: None,
    };
    let configuration = inputs.load(Reading::First)?;
    let inputs = Inputs { envoy: Some(configuration.envoy.clone()), ..inputs };
    configuration.settings.check_files()?;
    for warning in &configuration.warnings {
        output::complain(&format!("{warning}\n"));
    }
    let count = configuration.policy.limits().len();
    let limits = if count == 1 { "1 limit".to_owned() } else { format!("{count} limits") };
    let verdict = if configuration.warnings.is_empty() { "no mistakes" } else { "no mistakes, but warnings" };
    output::line(&format!("{}: {limits}, {verdict}", inputs.name()))?;
    Ok(ExitCode::SUCCESS)
}
