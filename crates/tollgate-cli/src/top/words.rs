//! Texts that the screen and the plain snapshot share.

use std::fmt::Write;

use tollgate_api::{Latency, LimitSeries};

use super::data::{Fleet, Limit, Overview, is_counted, window};
use super::{number, percent};
use crate::client::in_words;

/// Summarizes the condition of the server.
pub(super) fn condition(overview: &Overview) -> String {
    let refused = window(overview).refused;
    // Lists are not limits: a denied caller is refused in every mode.
    let refusing =
        |mode: &str| format!("{mode}, yet {} refused in 5 min: deny list, or before", number(refused));
    match overview.mode.0.as_str() {
        "off" if refused > 0 => refusing("OFF"),
        "off" => "OFF: no limit counts or refuses".to_owned(),
        "shadow" if refused > 0 => refusing("SHADOW"),
        "shadow" => "SHADOW: no limit refuses".to_owned(),
        _ if overview.store.health.state.0 == "degraded" => "DEGRADED: deciding without the store".to_owned(),
        _ => "enforcing".to_owned(),
    }
}

pub(super) fn policy(overview: &Overview) -> String {
    let policy = &overview.policy;
    let switched = match policy.switched {
        0 => String::new(),
        many => format!(", {} switched", number(many)),
    };
    let limits = if policy.limits == 1 { "limit" } else { "limits" };
    format!("policy {}: {} {limits}{switched}", policy.version, number(policy.limits))
}

pub(super) fn store(overview: &Overview) -> String {
    let store = &overview.store;
    let mut said = format!("store {}", store.kind);
    if let Some(address) = &store.health.address {
        let _ = write!(said, " {address}");
    }
    let _ = write!(said, " {}", store.health.state);
    if !matches!(store.breaker.0.as_str(), "" | "closed") {
        let _ = write!(said, ", breaker {}", store.breaker);
    }
    if store.nodes > 1 {
        let _ = write!(said, ", {} nodes", store.nodes);
    }
    if let Some(keys) = store.keys {
        let _ = write!(said, ", {} keys", number(keys));
    }
    if store.health.degraded_decisions > 0 {
        let _ = write!(said, ", {} decided without it", number(store.health.degraded_decisions));
    }
    said
}

/// Summarizes all nodes that share the store.
pub(super) fn fleet(fleet: &Fleet) -> String {
    let totals = &fleet.totals;
    let nodes = if totals.nodes == 1 { "node" } else { "nodes" };
    let mut said = format!(
        "all {} {nodes}, last 5 minutes: {} allowed, {} refused",
        number(totals.nodes),
        number(totals.window.allowed),
        number(totals.window.refused)
    );
    if totals.window.degraded > 0 {
        let _ = write!(said, ", {} without the store", number(totals.window.degraded));
    }
    if totals.leased_units > 0 {
        let _ = write!(said, ", {} units leased", number(totals.leased_units));
    }
    if totals.oldest_ms > 0 {
        let _ = write!(said, "; reports up to {} old", in_words(totals.oldest_ms));
    }
    if fleet.silent > 0 {
        let _ = write!(said, "; {} more without a report", number(fleet.silent));
    }
    if let Some(error) = &fleet.error {
        let _ = write!(said, "; others cannot be read: {error}");
    }
    said
}

/// Formats the counts since the start of the server.
pub(super) fn totals(overview: &Overview) -> String {
    let totals = &overview.totals;
    let allowed = totals.allowed.saturating_add(totals.unlimited);
    let refused = [totals.limited, totals.blocked, totals.uncountable, totals.shed]
        .into_iter()
        .fold(0, u64::saturating_add);
    format!("since start {} allowed, {} refused", number(allowed), number(refused))
}

/// Formats decision latency; empty if there were no recent decisions.
pub(super) fn latency(overview: &Overview) -> String {
    let said = |it: &Latency| format!("decides in {} µs, p99 {} µs", number(it.p50), number(it.p99));
    overview.latency_us.as_ref().map(said).unwrap_or_default()
}

/// Returns the time of day of an RFC 3339 time: `12:00:03`.
pub(super) fn clock(at: &str) -> String {
    at.split_once('T').map_or(at, |(_, time)| time).chars().take(8).collect()
}

/// Formats a fate of the API for the screen.
pub(super) fn fate(fate: &str) -> String {
    fate.replace('_', "-")
}

/// Formats a number of a limit, if it is known.
pub(super) fn known(it: &Limit, what: &str, count: Option<u64>) -> String {
    if !is_counted(it) {
        return "not counted".to_owned();
    }
    format!("{} {what}", number(count.unwrap_or(0)))
}

/// Describes one limit and its last five minutes.
pub(super) fn limit(it: &Limit) -> Vec<String> {
    let mode = if it.mode == it.policy_mode {
        format!("{}, as the policy says", it.mode)
    } else {
        format!("{}; the policy says {}", it.mode, it.policy_mode)
    };
    let mut lines = vec![format!("mode          {mode}")];
    if let Some(live) = &it.candidate_of {
        lines.push(format!("candidate of  {live}: tried beside it, never enforced"));
    }
    lines.push(String::new());
    if !is_counted(it) {
        lines.push("not counted on its own: the policy has more limits than are".to_owned());
        return lines;
    }
    lines.push("in the last five minutes".to_owned());
    for (name, count) in [
        ("allowed", it.allowed),
        ("refused", it.limited),
        ("would refuse", it.shadow_limited),
        ("blocked", it.blocked),
        ("spent all", it.exhausted),
        ("over soft", it.soft),
        ("no store", it.degraded),
    ] {
        let count = count.unwrap_or(0);
        if count > 0 || matches!(name, "allowed" | "refused") {
            lines.push(format!("{name:<12}  {}", number(count)));
        }
    }
    if let Some(left) = it.remaining_min {
        lines.push(format!("least left    {}", percent(left)));
    }
    if let Some(series) = &it.series {
        lines.push(String::new());
        lines.extend(curves(series));
    }
    if let Some(both) = &it.agreement {
        lines.push(String::new());
        let since = both.since.as_ref().map_or("start", |since| &since.0);
        lines.push(format!("it and the live limit, since {since}"));
        for (name, count) in [
            ("both allow", both.both_allow),
            ("both refuse", both.both_refuse),
            ("only it allows", both.only_candidate_allows),
            ("only it refuses", both.only_live_allows),
        ] {
            lines.push(format!("{name:<16}  {}", number(count)));
        }
    }
    lines
}

/// Renders sixty columns: five minutes in steps of five seconds.
fn curves(series: &LimitSeries) -> Vec<String> {
    #[allow(clippy::cast_precision_loss, reason = "a column has eight heights")]
    let share = |values: &[u64]| -> Vec<Option<f64>> {
        let most = values.iter().max().copied().unwrap_or_default().max(1) as f64;
        values.iter().map(|it| Some(*it as f64 / most)).collect()
    };
    vec![
        format!("allowed  {}", columns(&share(&series.allowed))),
        format!("refused  {}", columns(&share(&series.limited))),
        format!("left     {}", columns(&series.remaining)),
    ]
}

/// Renders shares from 0 to 1 as columns; a gap if unknown.
fn columns(shares: &[Option<f64>]) -> String {
    const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let column = |share: &Option<f64>| match share {
        None => '·',
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=8")]
        Some(share) => HEIGHTS[(share.clamp(0.0, 1.0) * 8.0).ceil() as usize],
    };
    shares.iter().take(120).map(column).collect()
}
