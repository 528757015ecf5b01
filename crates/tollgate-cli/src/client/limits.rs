//! `tollgate limits`: the limits that a running server enforces.

use std::process::ExitCode;

use tollgate_api::{Limit, Limits};
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;

use super::{Question, Server, print, rows};
use crate::arguments::Listing;

pub(crate) fn limits(arguments: &Listing, environment: &Environment) -> Result<ExitCode, Failure> {
    let server = Server::of(&arguments.api, environment)?;
    let answer = server.ask::<Limits>(&Question::get("/v1/limits"))?;
    print(&arguments.api, &answer, |limits| words(&limits.limits))?;
    Ok(ExitCode::SUCCESS)
}

fn words(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return "no limits: every request is admitted\n".to_owned();
    }
    rows(limits, |it| [printable(&it.name), coverage(it), key(it), quota(it), mode(it)])
}

fn coverage(limit: &Limit) -> String {
    let mut words: Vec<&str> = Vec::new();
    for list in [&limit.hosts, &limit.methods, &limit.endpoints, &limit.domains, &limit.descriptor] {
        words.extend(list.iter().map(String::as_str));
    }
    if !limit.except.is_empty() {
        words.push("except");
        words.extend(limit.except.iter().map(String::as_str));
    }
    printable(&words.join(" "))
}

fn key(limit: &Limit) -> String {
    format!("by {}", printable(&limit.by.join(" and ")))
}

fn quota(limit: &Limit) -> String {
    printable(&format!("{} {}", limit.algorithm, limit.quotas.join(", "))).trim_end().to_owned()
}

fn mode(limit: &Limit) -> String {
    match (&limit.candidate_of, limit.switched) {
        (Some(of), _) => format!("candidate of {}", printable(of)),
        (None, true) => {
            format!("{}, switched; the policy says {}", printable(&limit.mode), printable(&limit.policy_mode))
        }
        (None, false) => printable(&limit.mode),
    }
}
