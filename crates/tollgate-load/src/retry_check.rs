//! Checks that a request is accepted at the time that a refusal named.
//!
//! During the load, other requests take the units for which a refused request was told to wait. Therefore the check runs
//! after it, with one request at a time: requests until one is refused, the wait, and one retry.

use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;
use tollgate::{Clock, Span};
use tollgate_client::headers::{Advice, Reset, Wait};

use crate::plan::LoadPlan;
use crate::report::RetryReport;
use crate::sender::{Head, SendError, Sender};

/// The most requests that are sent until one is refused.
const MAX_PROBES: u32 = 1_000;

/// The header that names a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitSource {
    /// `Retry-After`, or the longest wait if there are several.
    RetryAfter,
    /// A wait in milliseconds, such as `retry-after-ms`, that is shorter than `Retry-After`.
    Milliseconds,
    /// The reset of a bucket, without another wait.
    Reset,
}

/// A retry at the time that a refusal named.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RetryCheck {
    /// The header.
    pub source: WaitSource,
    /// The wait in seconds.
    pub wait_seconds: f64,
    /// The status of the retry.
    pub status: u16,
    /// Whether no limit refused the retry.
    pub accepted: bool,
}

/// Returns the waits that a refusal names.
pub(crate) fn waits(advice: &Advice<'_>) -> Vec<(WaitSource, Span)> {
    let until = |at: tollgate::Timestamp| advice.date.map(|date| at.since(date));
    let longest = match advice.wait {
        Some(Wait::After(span)) => Some(span),
        Some(Wait::Until(at)) => until(at),
        None => None,
    };
    let Some(longest) = longest else {
        let resets = advice.buckets.iter().filter(|bucket| bucket.remaining == Some(0));
        let resets = resets.filter_map(|bucket| match bucket.reset? {
            Reset::After(span) => Some(span),
            Reset::At(at) => until(at),
        });
        return resets.max().map(|span| (WaitSource::Reset, span)).into_iter().collect();
    };
    let mut waits = vec![(WaitSource::RetryAfter, longest)];
    waits.extend(advice.precise_wait.filter(|it| *it < longest).map(|it| (WaitSource::Milliseconds, it)));
    waits
}

/// Sends the retries of a plan. `observe` gets every response.
pub(crate) async fn check(
    plan: &LoadPlan,
    sender: &Sender,
    clock: &impl Clock,
    report: &mut RetryReport,
    mut observe: impl FnMut(&Head, tollgate::Timestamp),
) {
    for number in 0..plan.checks {
        match check_once(plan, sender, number, clock, &mut observe).await {
            Ok(check) => report.checks.push(check),
            Err(reason) => {
                report.unchecked = Some(reason);
                return;
            }
        }
    }
}

async fn check_once(
    plan: &LoadPlan,
    sender: &Sender,
    number: u32,
    clock: &impl Clock,
    observe: &mut impl FnMut(&Head, tollgate::Timestamp),
) -> Result<RetryCheck, String> {
    let failed = |error: SendError| format!("a request failed: {error}");
    let started = clock.now();
    let mut refusal = None;
    for _ in 0..MAX_PROBES {
        let sent_at = clock.now();
        let head = sender.send().await.map_err(failed)?;
        observe(&head, sent_at);
        if Advice::read(&head.headers).is_refusal(head.status) {
            refusal = Some(head);
            break;
        }
        if clock.now().since(started) > plan.max_wait.into() {
            break;
        }
    }
    let refusal = refusal.ok_or("no request was refused when one was sent after the other")?;
    let waits = waits(&Advice::read(&refusal.headers));
    let at = usize::try_from(number).unwrap_or_default() % waits.len().max(1);
    let (source, wait) = *waits.get(at).ok_or("the refusal names no wait")?;
    if wait > plan.max_wait.into() {
        let seconds = wait.as_secs_ceil();
        return Err(format!(
            "the refusal names {seconds} s, which is more than the longest wait that is checked"
        ));
    }
    sleep(Duration::from(wait)).await;
    let sent_at = clock.now();
    let head = sender.send().await.map_err(failed)?;
    observe(&head, sent_at);
    let accepted = !Advice::read(&head.headers).is_refusal(head.status);
    Ok(RetryCheck {
        source,
        wait_seconds: Duration::from(wait).as_secs_f64(),
        status: head.status.as_u16(),
        accepted,
    })
}
