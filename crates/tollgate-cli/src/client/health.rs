//! `tollgate health`: whether a server is ready, for health checks of containers without other programs.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;

use super::{Question, Server, print};
use crate::arguments::Listing;

/// Exit status 0 if the server is ready, 2 if it is not or gives no answer.
pub(crate) fn health(arguments: &Listing, environment: &Environment) -> Result<ExitCode, Failure> {
    let server = Server::of(&arguments.api, environment)?;
    let answer = server.ask::<Value>(&Question::get("/readyz"))?;
    print(&arguments.api, &answer, |answer| {
        let mut said = "ready".to_owned();
        if let Some(version) = answer["policy_version"].as_u64() {
            let _ = write!(said, ", policy version {version}");
        }
        if let Some(error) = answer["reload_error"].as_str() {
            let _ = write!(said, "; the last reload was rejected: {}", printable(error));
        }
        said + "\n"
    })?;
    Ok(ExitCode::SUCCESS)
}
