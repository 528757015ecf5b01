//! `tollgate explain --bucket`: why each Envoy has its part of a limit.

use std::process::ExitCode;

use tollgate_api::ExplainedBucket;
use tollgate_daemon::{Environment, Failure};
use tollgate_document::sanitize::printable;

use super::server::{Question, Server};
use super::{print, request, segment};
use crate::arguments::Explain;

/// Asks about a bucket and prints the explanation.
pub(super) fn explain(
    entries: &str,
    arguments: &Explain,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    if !request::is_anonymous(&arguments.caller) {
        return Err(Failure::with_help(
            "a bucket has no caller",
            "name the entries of the bucket: `tollgate explain --bucket 'name=search, tenant=acme'`",
        ));
    }
    let server = Server::of(&arguments.api, environment)?;
    let mut path = format!("/v1/quotas/bucket?bucket={}", segment(entries));
    if let Some(domain) = &arguments.domain {
        path.push_str("&domain=");
        path.push_str(&segment(domain));
    }
    let answer = server.ask::<ExplainedBucket>(&Question::get(path))?;
    print(&arguments.api, &answer, |answer| words(answer).join("\n") + "\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the lines, without terminal control characters.
fn words(answer: &ExplainedBucket) -> Vec<String> {
    let bucket = &answer.bucket;
    let mut out = vec![
        printable(&answer.summary),
        String::new(),
        format!("  bucket    {} in the domain {}", printable(&bucket.bucket), printable(&bucket.domain)),
    ];
    if let Some(limit) = &bucket.limit {
        let mode = answer.mode.as_deref().map(printable).unwrap_or_default();
        out.push(format!("  limit     {}, {mode}", printable(limit)));
    }
    let ExplainedBucket { allowed, denied, overshoot, .. } = answer;
    out.push(format!("  reported  {allowed} allowed, {denied} denied, {overshoot} above the limit"));
    out.push(String::new());
    out.extend(answer.arithmetic.iter().map(|line| format!("  - {}", printable(line))));
    out
}

#[cfg(test)]
mod tests {
    use tollgate_api::QuotaBucket;

    use super::*;

    #[test]
    fn an_explanation_has_the_bucket_its_limit_and_the_arithmetic() {
        let bucket = QuotaBucket {
            limit: Some("search".to_owned()),
            domain: "edge".to_owned(),
            bucket: "name=search\u{1b}[2J".to_owned(),
            ..QuotaBucket::default()
        };
        let answer = ExplainedBucket {
            summary: "assigned 30/s of 300/s".to_owned(),
            bucket,
            mode: Some("enforce".to_owned()),
            allowed: 7,
            arithmetic: vec!["Envoy 1: assigned 30/s".to_owned()],
            ..ExplainedBucket::default()
        };
        let text = words(&answer).join("\n");
        for part in
            ["limit     search, enforce", "7 allowed, 0 denied, 0 above", "  - Envoy 1: assigned 30/s"]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
