//! Replays of seeded logs against models that are written from the definitions, without code of the engine.

mod models;
mod reports;

use std::net::IpAddr;

use tollgate::Policy;

use self::models::{Limit, Model, Request};
use super::{Replay, Report, Settings, Share, Suggest};
use crate::Entry;
use crate::log::{Requests, Tally};

/// Requests in memory that are already in order.
#[derive(Debug)]
struct OrderedRequests {
    entries: std::vec::IntoIter<Entry>,
    given: u64,
}

impl OrderedRequests {
    /// Creates a source from requests that are in the order of their times.
    fn new(entries: Vec<Entry>) -> Self {
        Self { entries: entries.into_iter(), given: 0 }
    }
}

impl Requests for OrderedRequests {
    fn next(&mut self, entry: &mut Entry) -> std::io::Result<bool> {
        let Some(next) = self.entries.next() else { return Ok(false) };
        *entry = next;
        self.given += 1;
        Ok(true)
    }

    fn tally(&self) -> Tally {
        Tally { lines: self.given, ..Tally::default() }
    }
}

/// Generates a log from a seed: several clients, ties in time, costs, pauses and bursts.
fn log(seed: u64, requests: usize, clients: u8) -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut at = 1_700_000_000_000_000 + rng.u64(0..120_000_000);
    let mut log = Vec::with_capacity(requests);
    while log.len() < requests {
        at += match rng.u8(0..10) {
            0..4 => 0,
            4..7 => rng.u64(0..400_000),
            7..9 => rng.u64(0..3_000_000),
            // Exactly at the ends of windows.
            _ => 1_000_000 - at % 1_000_000 + 1_000_000 * rng.u64(0..12),
        };
        let client = rng.u8(0..clients).min(rng.u8(0..clients));
        let path = if rng.bool() { "/search" } else { "/login" };
        log.push(Request { at, client, path, cost: [1, 1, 1, 2, 3][rng.usize(0..5)] });
    }
    log
}

fn entry(request: &Request) -> Entry {
    let mut entry = Entry::new(request.at, "GET", request.path);
    entry.client = Some(IpAddr::from([203, 0, 113, request.client]));
    entry.cost = Some(request.cost);
    entry
}

fn replayed(policies: &[&str], settings: Settings, log: &[Request]) -> Report {
    let parse = |(place, text): (usize, &&str)| (format!("{place}.yaml"), Policy::parse(text).unwrap());
    let mut replay = Replay::new(policies.iter().enumerate().map(parse).collect(), settings);
    let mut given = OrderedRequests::new(log.iter().map(entry).collect());
    replay.run(&mut given).unwrap();
    replay.finish(&given.tally())
}

/// Returns every kind of limit as policies write it, with its model.
fn kinds(rng: &mut fastrand::Rng) -> Vec<(String, Model)> {
    let (count, seconds) = (rng.u64(2..12), rng.u64(1..25));
    let burst = rng.u64(1..15);
    let window = seconds * 1_000_000;
    vec![
        (format!("rate: {count}/{seconds}s, algorithm: fixed-window"), Model::fixed(count, window)),
        (format!("rate: {count}/{seconds}s, algorithm: sliding-log"), Model::log(count, window)),
        (format!("rate: {count}/{seconds}s, algorithm: sliding-window"), Model::two_counters(count, window)),
        (format!("bucket: '{count}/{seconds}s, burst {burst}'"), Model::bucket(count, window, burst)),
    ]
}

/// With one, two or three limits of any kind, charged all or none, the totals equal those of the model.
#[test]
fn totals_equal_those_of_an_exact_model_on_any_log() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut policy, mut limits) = (String::from("limits:\n"), Vec::new());
        for place in 0..rng.usize(1..4) {
            let (amount, model) =
                rng.choice(kinds(&mut fastrand::Rng::with_seed(seed + 1_000 * place as u64))).unwrap();
            let (by, per_client) = if rng.u8(0..4) > 0 { ("ip", true) } else { ("global", false) };
            let endpoint = ["/**", "/login"][rng.usize(0..2)];
            let limit = format!("  - {{name: l{place}, endpoint: '{endpoint}', by: {by}, {amount}}}\n");
            policy.push_str(&limit);
            limits.push(Limit::new(endpoint, per_client, model));
        }
        let log = log(seed, 700, 5);
        let expected = models::run(&mut limits, &log);
        let report = replayed(&[&policy], Settings::default(), &log);
        let totals = (report.policy.requests, report.policy.refused, report.policy.clients.refused);
        assert_eq!(totals, (700, expected.refused, expected.clients_refused), "seed {seed}: {policy}");
        for (limit, model) in report.policy.limits.iter().zip(&limits) {
            assert_eq!(
                (limit.checked, limit.refused),
                (model.checked, model.refused),
                "seed {seed}: {policy}"
            );
        }
        let decided: u64 = report.policy.limits.iter().map(|limit| limit.decided).sum();
        assert_eq!(decided, report.policy.refused, "seed {seed}");
    }
}

/// Every point of every curve, and both loops of the distance, for one limit of each kind.
#[test]
fn a_curve_counts_the_refusals_of_each_candidate_alone() {
    for seed in 0..6 {
        let log = log(seed, 500, 6);
        for (amount, model) in kinds(&mut fastrand::Rng::with_seed(seed)) {
            let policy = format!("limits: [{{name: a, by: ip, {amount}}}]");
            let report = replayed(&[&policy], Settings::default(), &log);
            let curve = report.policy.limits[0].curve.as_ref().unwrap();
            let own =
                curve.rates.iter().find(|point| point.amount == report.policy.limits[0].amount).unwrap();
            assert_eq!(own.refused, report.policy.refused, "seed {seed}: {amount}");
            assert!(curve.rates.len() >= 4 && !curve.estimated && curve.requests == 500);
            for (points, vary) in [(&curve.rates, true), (&curve.bursts, false)] {
                for point in points {
                    let model = if vary { model.at_rate(point.value) } else { model.at_burst(point.value) };
                    let mut limits = [Limit::new("/**", true, model)];
                    let expected = models::run(&mut limits, &log);
                    let found = (point.refused, point.keys_refused);
                    let expected = (expected.refused, expected.clients_refused);
                    assert_eq!(found, expected, "seed {seed}: {amount}, {}", point.amount);
                }
            }
        }
    }
}

#[test]
fn the_distance_from_an_exact_log_is_counted_in_both_loops() {
    for seed in 0..6 {
        let log = log(seed, 500, 4);
        for (amount, model) in kinds(&mut fastrand::Rng::with_seed(seed)) {
            let policy = format!("limits: [{{name: a, by: ip, {amount}}}]");
            let report = replayed(&[&policy], Settings::default(), &log);
            let exactness = report.policy.limits[0].exactness.unwrap();
            let (closed, open) = models::distance(&model, &log);
            let closed_found = (exactness.closed.too_lax, exactness.closed.too_strict);
            assert_eq!(closed_found, closed, "seed {seed}: {amount}");
            let is_window = !amount.starts_with("bucket") && !amount.contains("sliding-log");
            assert_eq!(exactness.open.is_some(), is_window);
            if let Some(found) = exactness.open {
                assert_eq!((found.too_lax, found.too_strict), open, "seed {seed}: {amount}");
            }
        }
    }
}

/// Every proposal is replayed: it meets the target, and the next smaller number does not.
#[test]
fn a_proposal_refuses_no_more_than_the_target() {
    for seed in 0..3 {
        let log = log(seed, 600, 6);
        for (amount, _) in kinds(&mut fastrand::Rng::with_seed(seed)) {
            for (requests, clients) in
                [(Some(5), None), (Some(0), None), (None, Some(40)), (Some(20), Some(50))]
            {
                let share = |percent: Option<u32>| percent.map(|percent| Share(10_000 * percent));
                let suggest = Suggest { requests: share(requests), clients: share(clients) };
                let settings = Settings { suggest, ..Settings::default() };
                let policy = format!("limits: [{{name: a, by: ip, {amount}}}]");
                let report = replayed(&[&policy], settings, &log);
                let limit = &report.policy.limits[0];
                let suggestion = limit.suggestion.as_ref().unwrap();
                assert!(!suggestion.proposals.is_empty(), "seed {seed}: {amount}");
                for proposal in &suggestion.proposals {
                    let algorithm = amount.split_once(", algorithm").map_or("", |(_, rest)| rest);
                    let rest =
                        if algorithm.is_empty() { String::new() } else { format!(", algorithm{algorithm}") };
                    let better = format!("limits: [{{name: a, by: ip, rate: '{}'{rest}}}]", proposal.amount);
                    let again = replayed(&[&better], Settings::default(), &log);
                    assert_eq!(again.policy.refused, proposal.refused, "seed {seed}: {amount} to {better}");
                    assert_eq!(again.policy.limits[0].keys.refused, proposal.keys_refused);
                    let keys = again.policy.limits[0].keys;
                    assert!(requests.is_none_or(|most| 100 * again.policy.refused <= u64::from(most) * 600));
                    assert!(clients.is_none_or(|most| 100 * keys.refused <= u64::from(most) * keys.seen));
                }
            }
        }
    }
}

#[test]
fn many_keys_are_estimated_and_memory_stays_flat() {
    // More keys than are counted exactly.
    let policy =
        Policy::parse("limits: [{name: a, by: user, rate: 1/hour, algorithm: fixed-window}]").unwrap();
    let mut replay = Replay::new(vec![("p".to_owned(), policy)], Settings::default());
    for user in 0_u64..140_000 {
        let mut entry = Entry::new(1_700_000_000_000_000 + user, "GET", "/");
        entry.set_user(&user.to_string());
        replay.request(&entry);
        if user % 2 == 0 {
            replay.request(&entry);
        }
    }
    let report = replay.finish(&Tally::default());
    let limit = &report.policy.limits[0];
    assert_eq!((report.policy.requests, report.policy.refused), (210_000, 70_000));
    assert!(limit.keys.estimated);
    assert!((130_000..150_000).contains(&limit.keys.seen), "{:?}", limit.keys);
    assert!((65_000..75_000).contains(&limit.keys.refused), "{:?}", limit.keys);
}
