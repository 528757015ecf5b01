//! `tollgate bench`: loads a URL, and prints the report.
//!
//! The load is in `tollgate_load`. `text` formats the report.

mod text;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tollgate::Span;
use tollgate_daemon::Failure;
use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;
use tollgate_document::sanitize::Printable;
use tollgate_document::{RateText, parse_span};
use tollgate_load::{LoadPlan, Manner};
use tollgate_net::HttpUrl;

use crate::arguments::Bench;
use crate::client::client_tls;
use crate::output;

/// The most arrivals per second.
const MAX_RATE: f64 = 1_000_000.0;
const MAX_DURATION: Span = Span::from_hours(24);

pub(crate) fn run(arguments: &Bench) -> Result<ExitCode, Failure> {
    let plan = plan(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error, Attempt::Other))?;
    let report = runtime.block_on(tollgate_load::run(plan, interrupted()));
    let report = report.map_err(|error| {
        Failure::with_help(
            format_args!("{error}"),
            "check the URL with `curl -i URL`; --ca FILE names an authority to trust",
        )
    })?;
    if arguments.json {
        output::line(&format!("{:#}", json!(report)))?;
    } else {
        output::text(&text::format(arguments, &report))?;
    }
    Ok(if report.has_findings() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Is ready after Ctrl-C: the report then covers the requests sent so far.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn plan(arguments: &Bench) -> Result<LoadPlan, Failure> {
    let url = HttpUrl::parse(&arguments.url).map_err(|wrong| {
        Failure::with_help(
            format_args!("`{}` cannot be loaded: {wrong}", Printable(&arguments.url)),
            "write the URL as http://127.0.0.1:8080/path",
        )
    })?;
    let tls = url.is_secure().then(|| client_tls(arguments.ca.as_deref())).transpose()?;
    let tls = tls.map(|mut config| {
        // One request at a time on a connection.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    });
    let body = body(arguments.body.as_deref())?;
    let method = arguments.method.as_deref().unwrap_or(if body.is_some() { "POST" } else { "GET" });
    let method = method.to_ascii_uppercase().parse().map_err(|_| {
        Failure::new(format_args!("`--method {}` is not a method of HTTP", Printable(method)))
    })?;
    let mut headers = hyper::HeaderMap::new();
    for header in &arguments.headers {
        let (name, value) = parse_header(header)?;
        headers.append(name, value);
    }
    Ok(LoadPlan {
        url,
        tls,
        method,
        headers,
        body: body.unwrap_or_default().into(),
        rate: rate(&arguments.rate)?,
        duration: time("--duration", &arguments.duration)?,
        connections: arguments.connections as usize,
        timeout: time("--timeout", &arguments.timeout)?,
        manner: if arguments.respect { Manner::Respect } else { Manner::Hammer },
        checks: arguments.checks,
        max_wait: time("--max-wait", &arguments.max_wait)?,
    })
}

fn body(text: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = text.and_then(|text| text.strip_prefix('@')) else {
        return Ok(text.map(|text| text.as_bytes().to_vec()));
    };
    let read = fs::read(path);
    read.map(Some).map_err(|error| {
        Failure::io(format_args!("cannot read {}", shown(path.as_ref())), &error, Attempt::Read)
    })
}

/// Parses `NAME: VALUE`. The message does not quote the value, which may be a secret.
fn parse_header(text: &str) -> Result<(hyper::header::HeaderName, hyper::header::HeaderValue), Failure> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        Some((name.trim().parse().ok()?, hyper::header::HeaderValue::try_from(value.trim()).ok()?))
    });
    parsed.ok_or_else(|| {
        let name = text.split(':').next().unwrap_or_default();
        Failure::with_help(
            format_args!("`--header {}…` is not a header", Printable(name)),
            "write it as --header 'Name: value'",
        )
    })
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn rate(text: &str) -> Result<f64, Failure> {
    let parsed = RateText::parse(text).map_err(|mistake| {
        Failure::with_help(
            format_args!("`--rate {}` is not a rate: {}", Printable(text), mistake.into_message()),
            "write it as 100/s or 3000/minute",
        )
    })?;
    let rate = parsed.rate();
    let per_second = rate.count as f64 * 1e6 / rate.period.as_micros() as f64;
    if per_second > 0.0 && per_second <= MAX_RATE {
        return Ok(per_second);
    }
    Err(Failure::new(format_args!(
        "`--rate {}` must be more than zero, and at most 1000000/s",
        Printable(text)
    )))
}

fn time(flag: &str, text: &str) -> Result<Duration, Failure> {
    let span = parse_span(text).ok().filter(|span| !span.is_zero() && *span <= MAX_DURATION);
    let span = span.ok_or_else(|| {
        Failure::with_help(
            format_args!("`{flag} {}` is not a length of time up to 24h", Printable(text)),
            "write it as 500ms, 10s or 5m",
        )
    })?;
    Ok(span.into())
}
