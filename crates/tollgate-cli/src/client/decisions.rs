//! `tollgate decisions`: past decisions of a running server, or of the folder of its decision log.

use std::process::ExitCode;

use tollgate::{Clock as _, SystemClock, Timestamp};
use tollgate_api::{DecisionLine, Decisions, MAX_DECISIONS};
use tollgate_daemon::{Environment, Failure, RecordQuery, read_decisions};
use tollgate_document::parse_span;
use tollgate_document::sanitize::printable;

use super::{Question, Server, in_words, rows, tagged, url};
use crate::arguments::{self, Api};

/// The default stretch.
const DEFAULT_SINCE: &str = "1h";

pub(crate) fn decisions(
    arguments: &arguments::Decisions,
    environment: &Environment,
) -> Result<ExitCode, Failure> {
    let found = match &arguments.dir {
        Some(dir) => {
            Decisions { decisions: read_decisions(dir, &query(arguments)?)?, ..Decisions::default() }
        }
        None => ask(arguments, environment)?,
    };
    if arguments.json {
        // Serializing to memory does not fail.
        crate::output::line(&serde_json::to_string(&found).unwrap_or_default())?;
    } else {
        crate::output::text(&words(&found.decisions))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks a server, page by page, until there are enough decisions.
fn ask(arguments: &arguments::Decisions, environment: &Environment) -> Result<Decisions, Failure> {
    let arguments::Decisions { since, until, key, limit, refused, most, json, server, cert_key, .. } =
        arguments;
    let api = Api { json: *json, server: server.clone(), key: cert_key.clone() };
    let server = Server::of(&api, environment)?;
    let mut conditions = format!("since={}", url::segment(since.as_deref().unwrap_or(DEFAULT_SINCE)));
    for (name, value) in [("until", until), ("key", key), ("limit", limit)] {
        if let Some(value) = value {
            conditions = format!("{conditions}&{name}={}", url::segment(value));
        }
    }
    if *refused {
        conditions.push_str("&refused=true");
    }
    let mut found = Decisions::default();
    let mut before = String::new();
    loop {
        let wanted = most.saturating_sub(found.decisions.len() as u64).min(MAX_DECISIONS);
        let path = format!("/v1/decisions?{conditions}&most={wanted}{before}");
        let page = server.ask::<Decisions>(&Question::get(path))?.value;
        let mut decisions = page.decisions;
        decisions.append(&mut found.decisions);
        found = Decisions { next: page.next, missed: page.missed, earlier: page.earlier, decisions };
        match &found.earlier {
            Some(earlier) if (found.decisions.len() as u64) < *most => {
                before = format!("&before={}", url::segment(earlier));
            }
            _ => return Ok(found),
        }
    }
}

/// Returns the search in a folder.
fn query(arguments: &arguments::Decisions) -> Result<RecordQuery, Failure> {
    let now = SystemClock::new().now();
    let time = |flag: &str, text: Option<&str>| text.map(|text| point_in_time(flag, text, now)).transpose();
    Ok(RecordQuery {
        since: time("--since", arguments.since.as_deref().or(Some(DEFAULT_SINCE)))?,
        until: time("--until", arguments.until.as_deref())?,
        limit: arguments.limit.clone(),
        key: arguments.key.clone(),
        refused: arguments.refused,
        most: usize::try_from(arguments.most).unwrap_or(usize::MAX),
        ..RecordQuery::default()
    })
}

fn point_in_time(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(span) = parse_span(text) {
        return Ok(now.before(span));
    }
    let date = text.parse::<jiff::Timestamp>().ok().and_then(|it| u64::try_from(it.as_microsecond()).ok());
    date.map(Timestamp::from_micros).ok_or_else(|| {
        Failure::with_help(
            format_args!("{flag} is neither a duration nor a date: `{}`", printable(text)),
            format_args!("such as {flag} 2h, or {flag} 2026-11-17T09:00:00Z"),
        )
    })
}

fn words(decisions: &[DecisionLine]) -> String {
    if decisions.is_empty() {
        return "no such decisions\n".to_owned();
    }
    rows(decisions, |it| {
        let text = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
        let request = format!("{} {}", it.method, it.path);
        [
            printable(&it.at),
            printable(&it.id),
            printable(&it.fate),
            text(&it.limit),
            tagged(&text(&it.key), it.tag.as_deref().unwrap_or_default()),
            printable(request.trim()),
            text(&it.client),
            it.retry_after_ms.map(|wait| format!("retry after {}", in_words(wait))).unwrap_or_default(),
        ]
    })
}
