//! Renders a table for each rate, with its interpretation.

use std::fmt::Write as _;

use tollgate_sim::distance::Disagreement;
use tollgate_sim::plot::number::{count, plural, share};
use tollgate_sim::simulate::{AlgorithmReport, Round};
use tollgate_sim::traffic::By;

use super::LogRead;
use crate::client::in_words;

/// The gap between two columns.
const COLUMN_GAP: &str = "  ";

/// Describes the log that was read.
pub(super) fn log(log: &LogRead) -> String {
    let mut out = plural(log.requests, "request", "requests");
    if log.skipped_lines > 0 {
        let _never = write!(out, ", {} skipped", plural(log.skipped_lines, "line", "lines"));
    }
    if log.late > 0 {
        let _never = write!(out, ", {} too late to be put in order", count(log.late));
    }
    out.push('\n');
    out
}

/// Describes the parameters of a round.
pub(super) fn headline(round: &Round) -> String {
    let Some(traffic) = &round.traffic else { return format!("\n{}\n", round.rate) };
    let clients = plural(traffic.clients.into(), "client", "clients");
    let whose = match (traffic.by, traffic.clients) {
        (By::Everybody, _) => " with one limit for all of them",
        (By::Client, 1) => "",
        (By::Client, _) => " with a limit each",
    };
    let mut out = format!(
        "\n{} at {}: {}\n{clients}{whose}, load {}, for {}, seed {}",
        traffic.shape,
        round.rate,
        traffic.words,
        traffic.load,
        seconds(traffic.duration_s),
        traffic.seed,
    );
    if let Some(retry) = &traffic.retry {
        let wait =
            if retry.honours_retry_after { "they heed Retry-After" } else { "they ignore Retry-After" };
        let jitter = if retry.jitter { "with jitter" } else { "without jitter" };
        let _never = write!(out, "; {wait}, {jitter}, and try {} times", retry.attempts);
    }
    if traffic.nodes > 1 {
        let _never = write!(out, "; {} nodes", traffic.nodes);
    }
    out.push('\n');
    out
}

/// Renders a table, and a sentence for each algorithm.
pub(super) fn round(round: &Round, width: usize) -> String {
    let mut out = String::from("\n");
    out.push_str(&if round.traffic.is_some() { of_traffic(round) } else { of_log(round) });
    if round.traffic.is_some() {
        out.push('\n');
        for it in &round.algorithms {
            let name = it.algorithm.word();
            out.push_str(&folded(&format!("{name:<14}{COLUMN_GAP}"), &it.words, width));
        }
    }
    for note in &round.notes {
        out.push_str(&folded("note: ", note, width));
    }
    out
}

/// A column: its heading, and its value for a row.
pub(super) type Column<'c, T> = (&'c str, Box<dyn Fn(&T) -> String>);

fn column(heading: &str, of: impl Fn(&AlgorithmReport) -> String + 'static) -> Column<'_, AlgorithmReport> {
    (heading, Box::new(of))
}

fn of_traffic(round: &Round) -> String {
    let comes_back = round.traffic.as_ref().is_some_and(|it| it.retry.is_some());
    let several = round.traffic.as_ref().is_some_and(|it| it.clients > 1);
    let mut columns = vec![
        column("asked", |it| count(it.offered)),
        column("admitted", |it| count(it.admitted)),
        column("in a window", in_a_window),
    ];
    if comes_back {
        columns.push(column("waited", |it| seconds(it.longest_wait_s)));
        columns.push(column("wasted", |it| count(it.wasted_retries)));
        columns.push(column("gave up", |it| count(it.given_up)));
    } else {
        columns.insert(2, column("refused", |it| count(it.refused)));
        columns.push(column("wait told", |it| seconds(it.longest_retry_after_s)));
    }
    if several {
        columns.push(column("served", |it| match (it.least_served, it.most_served) {
            (Some(least), Some(most)) => format!("{}–{} %", percent(least), percent(most)),
            _ => "–".to_owned(),
        }));
    }
    columns.push(column("off the log", |it| differs(it.closed_loop.as_ref())));
    columns.push(column("bytes", |it| count(it.state_bytes as u64)));
    table(&round.algorithms, |it| it.algorithm.word(), &columns)
}

/// Renders the exactness on a log. Closed loop: each algorithm remembers the requests that it admitted.
/// Open loop: both see every request.
fn of_log(round: &Round) -> String {
    let counts = |of: fn(&Disagreement) -> u64, open: bool| {
        move |it: &AlgorithmReport| {
            let which = if open { &it.open_loop } else { &it.closed_loop };
            which.as_ref().map_or_else(|| "–".to_owned(), |it| count(of(it)))
        }
    };
    table(
        &round.algorithms,
        |it| it.algorithm.word(),
        &[
            column("refused", |it| count(it.refused)),
            column("in a window", in_a_window),
            column("closed: differs", |it| differs(it.closed_loop.as_ref())),
            column("lax", counts(|it| it.too_lax, false)),
            column("strict", counts(|it| it.too_strict, false)),
            column("open: differs", |it| differs(it.open_loop.as_ref())),
            column("lax", counts(|it| it.too_lax, true)),
            column("strict", counts(|it| it.too_strict, true)),
            column("bytes", |it| count(it.state_bytes as u64)),
        ],
    )
}

/// Renders a table with a named row for each value.
pub(super) fn table<T>(rows: &[T], name: impl Fn(&T) -> &'static str, columns: &[Column<'_, T>]) -> String {
    let first = rows.iter().map(|it| name(it).len()).max().unwrap_or(0);
    let cells: Vec<Vec<String>> =
        rows.iter().map(|it| columns.iter().map(|(_, of)| of(it)).collect()).collect();
    let width = |at: usize| {
        let widest = cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        widest.max(columns[at].0.chars().count())
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut out = format!("{:first$}", "");
    for ((heading, _), width) in columns.iter().zip(&widths) {
        let _never = write!(out, "{COLUMN_GAP}{heading:>width$}");
    }
    out.push('\n');
    for (it, row) in rows.iter().zip(&cells) {
        let _never = write!(out, "{:first$}", name(it));
        for (cell, width) in row.iter().zip(&widths) {
            let _never = write!(out, "{COLUMN_GAP}{cell:>width$}");
        }
        out.push('\n');
    }
    out
}

/// Formats the maximum in any window, also as a multiple of the limit.
fn in_a_window(it: &AlgorithmReport) -> String {
    let times = format!("{:.2}", it.times_the_limit);
    let times = times.strip_suffix('0').unwrap_or(&times);
    format!("{} ({times} ×)", count(it.most_in_a_window))
}

/// Explains the columns.
pub(super) fn legend(is_log: bool, comes_back: bool, width: usize) -> String {
    let of_log = "in a window: the most that one key was let through in any window. differs: decided otherwise than an exact log; \
                  lax: admitted what the log refuses, strict: refused what it admits. closed: each remembers what it let through itself; \
                  open: both are shown every request. bytes: the largest state of a key.";
    let of_traffic = "in a window: the most that one key was let through in any window. off the log: decided otherwise than an exact log. \
                      bytes: the largest state of a key.";
    let of_retries = " waited: the longest from a first try to an admission. wasted: retries that were refused. served: of its requests, \
                      the client that fared worst and the one that fared best.";
    let text = if is_log { of_log } else { of_traffic };
    let more = if comes_back { of_retries } else { "" };
    format!("\n{}", folded("", &format!("{text}{more}"), width))
}

fn differs(of: Option<&Disagreement>) -> String {
    of.map_or_else(|| "–".to_owned(), |it| share(it.too_lax + it.too_strict, it.requests))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of one")]
fn percent(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 100.0).round() as u64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shorter than four years")]
pub(super) fn seconds(seconds: f64) -> String {
    if seconds <= 0.0 { "–".to_owned() } else { in_words((seconds * 1000.0).ceil() as u64) }
}

/// Wraps text after a heading.
pub(super) fn folded(head: &str, text: &str, width: usize) -> String {
    let indent = head.chars().count();
    let (mut out, mut at) = (head.to_owned(), indent);
    for (number, word) in text.split(' ').enumerate() {
        let long = word.chars().count();
        if number > 0 && at + 1 + long > width {
            let _never = write!(out, "\n{:indent$}", "");
            at = indent;
        } else if number > 0 {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += long;
    }
    out.push('\n');
    out
}
