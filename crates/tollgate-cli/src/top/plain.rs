//! A snapshot as plain text, for pipes, mails and tickets.

use std::fmt::Write;

use super::data::{limit_and_tag, or_empty, refused, reload_error, requests, shown, window};
use super::poll::Snapshot;
use super::state::State;
use super::{number, percent, words};
use crate::client::{in_words, rows};

/// The maximum number of rows in a list.
const MAX_ROWS: usize = 10;

pub(super) fn snapshot(url: String, look: Snapshot) -> String {
    let state = State::new(url, look);
    let overview = &state.look.overview;
    let mut out = format!("tollgate {} at {}: {}\n", overview.version, state.url, words::condition(overview));
    let window = window(overview);
    for line in [
        format!("{}, at {}", words::policy(overview), overview.now),
        words::store(overview),
        format!("last 5 minutes: {} allowed, {} refused", number(window.allowed), number(window.refused)),
        words::totals(overview),
        words::latency(overview),
        state.look.fleet.as_ref().map(words::fleet).unwrap_or_default(),
    ] {
        if line.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  {line}");
    }
    if !overview.observing {
        out.push_str("  this server counts nothing (`observe: off`)\n");
    }
    for mistake in reload_error(overview) {
        let _ = writeln!(out, "  the policy file has a mistake: {mistake}");
    }
    let health = &overview.store.health;
    if health.state.0 == "degraded" {
        let [since, error] = [&health.since, &health.error].map(|text| or_empty(text.as_ref()));
        let _ = writeln!(out, "  store degraded since {since}: {error}");
    }
    for alert in overview.alerts.iter().take(MAX_ROWS) {
        let since = in_words(alert.for_s.saturating_mul(1000));
        let _ =
            writeln!(out, "  nothing left for {since}: {} of {}", shown(&alert.key, &alert.tag), alert.limit);
    }
    if let Some(fleet) = &state.look.fleet {
        section(&mut out, "nodes, in 5 minutes", &fleet.nodes, |it| {
            [
                it.name.to_string(),
                it.version.to_string(),
                if it.this { "this node".to_owned() } else { format!("{} ago", in_words(it.age_ms)) },
                format!("{} allowed", number(it.window.allowed)),
                format!("{} refused", number(it.window.refused)),
                if it.store_degraded { "store degraded" } else { "" }.to_owned(),
                match it.leases.units {
                    0 => String::new(),
                    units => format!("{} units leased", number(units)),
                },
            ]
        });
    }
    section(&mut out, "limits, by refusals in 5 minutes", &state.limits(), |it| {
        [
            it.name.to_string(),
            it.mode.to_string(),
            words::known(it, "refused", Some(refused(it))),
            words::known(it, "allowed", it.allowed),
            words::known(it, "would be refused", it.shadow_limited),
            it.remaining_min.map(|left| format!("down to {} left", percent(left))).unwrap_or_default(),
        ]
    });
    section(&mut out, "keys refused most in 5 minutes", &state.keys(), |it| {
        let refused = format!("{} refused, {} of all", number(it.refused), percent(it.share));
        [shown(&it.key, &it.tag), it.limit.to_string(), refused]
    });
    section(&mut out, "hot routes in 5 minutes", &state.routes(), |it| {
        let counts = format!("{} requests, {} refused", requests(it), number(it.refused));
        [it.method.to_string(), it.path.to_string(), counts]
    });
    section(&mut out, "latest decisions", &state.stream(), |it| {
        let request = format!("{} {}", it.method, it.path);
        let at = words::clock(&it.at.0);
        let client = or_empty(it.client.as_ref()).to_owned();
        [at, words::fate(&it.fate.0), request, client, limit_and_tag(it), it.id.to_string()]
    });
    out
}

fn section<T, const COLUMNS: usize>(
    out: &mut String,
    title: &str,
    all: &[T],
    cells: impl Fn(&T) -> [String; COLUMNS],
) {
    let shown = &all[..all.len().min(MAX_ROWS)];
    let _ = writeln!(out, "\n{title}");
    out.push_str(if shown.is_empty() { "  none\n" } else { "" });
    out.push_str(&rows(shown, cells));
    if all.len() > shown.len() {
        let _ = writeln!(out, "  and {} more", number((all.len() - shown.len()) as u64));
    }
}
