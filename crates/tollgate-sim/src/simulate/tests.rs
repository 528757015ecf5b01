//! Known properties of the algorithms, shown by the simulation.

use tollgate::Span;

use super::*;
use crate::Entry;
use crate::traffic::{By, Retry, Shape, Traffic};

fn contestants(rate: &str, by: By) -> Vec<Contestant> {
    Choice::ALL.iter().map(|&choice| Contestant::new(choice, rate, None, by.word()).unwrap()).collect()
}

fn simulated(contestants: Vec<Contestant>, network: Network, traffic: Traffic) -> Round {
    let question = Question { traffic, contestants, network, most_events: 1_000_000, notes: Vec::new() };
    Simulation::new(question).unwrap().run()
}

fn on(rate: &str, shape: Shape) -> Round {
    let by = if shape.retries() { By::Everybody } else { By::Client };
    let contestants = contestants(rate, by);
    let traffic = Traffic::new(shape, contestants[0].rate);
    simulated(contestants, Network::default(), traffic)
}

fn of(round: &Round, choice: Choice) -> &AlgorithmReport {
    round.algorithms.iter().find(|it| it.algorithm == choice).unwrap()
}

#[test]
fn at_the_edge_a_fixed_window_lets_twice_the_limit_through_and_a_log_never_more_than_once() {
    for rate in ["10/minute", "7/3s", "100/hour"] {
        let round = on(rate, Shape::Edge);
        let fixed = of(&round, Choice::FixedWindow);
        assert_eq!(fixed.most_in_a_window, 2 * round.limit, "{rate}");
        assert!(fixed.words.contains("twice the limit"), "{}", fixed.words);
        assert_eq!(of(&round, Choice::SlidingLog).most_in_a_window, round.limit, "{rate}");
        // An estimate: it assumes that the burst was evenly spread.
        assert!(of(&round, Choice::SlidingWindow).times_the_limit <= 1.1, "{rate}");
        assert_eq!(fixed.refused, 0);
        assert!(of(&round, Choice::SlidingLog).refused > 0);
        // The window is at its maximum after the second burst, and the chart crosses the level.
        let highest = fixed.series.window.iter().copied().max();
        assert_eq!(highest, Some(2 * round.limit));
    }
}

#[test]
fn counts_add_up_for_every_shape_and_algorithm() {
    for shape in Shape::ALL {
        let round = on("20/10s", shape);
        assert_eq!(round.algorithms.len(), Choice::ALL.len());
        for it in &round.algorithms {
            let what = format!("{shape:?} {:?}", it.algorithm);
            assert_eq!(it.offered, it.admitted + it.refused, "{what}");
            assert_eq!(it.offered, it.requests + it.retries, "{what}");
            assert_eq!(it.series.offered.iter().sum::<u64>(), it.offered, "{what}");
            assert_eq!(it.series.admitted.iter().sum::<u64>(), it.admitted, "{what}");
            assert_eq!(it.series.window.iter().max(), Some(&it.most_in_a_window), "{what}");
            assert!(it.wasted_retries <= it.retries && it.offered > 0, "{what}");
            assert!(it.state_bytes > 0, "{what}");
            assert_eq!(it.retries > 0 || shape == Shape::RetryStorm, shape == Shape::RetryStorm, "{what}");
        }
        let log = of(&round, Choice::SlidingLog);
        let closed = log.closed_loop.expect("a log can be compared with itself");
        assert_eq!((closed.too_lax, closed.too_strict, closed.requests), (0, 0, log.offered), "{shape:?}");
        assert_eq!(log.most_in_a_window.max(20), 20, "{shape:?}");
    }
}

#[test]
fn a_simulation_is_reproducible() {
    for shape in [Shape::Poisson, Shape::RetryStorm] {
        assert_eq!(on("20/10s", shape), on("20/10s", shape));
    }
}

#[test]
fn running_in_steps_gives_the_same_result() {
    let contestants = contestants("20/10s", By::Everybody);
    let traffic = Traffic::new(Shape::RetryStorm, contestants[0].rate);
    let question = Question {
        traffic,
        contestants,
        network: Network::default(),
        most_events: 1_000_000,
        notes: Vec::new(),
    };
    let mut simulation = Simulation::new(question.clone()).unwrap();
    let mut steps = 0;
    while simulation.step(7) {
        steps += 1;
    }
    assert!(steps > 10);
    assert_eq!(simulation.round(), Simulation::new(question).unwrap().run());
}

#[test]
fn a_steady_client_below_its_rate_is_never_refused() {
    let contestants = contestants("60/minute", By::Client);
    let traffic = Traffic { load: 0.9, ..Traffic::new(Shape::Steady, contestants[0].rate) };
    for it in simulated(contestants, Network::default(), traffic).algorithms {
        assert_eq!(it.refused, 0, "{:?}", it.algorithm);
    }
}

#[test]
fn a_storm_with_jitter_has_lower_peaks() {
    let with = |jitter: bool| {
        let fixed = Contestant::new(Choice::FixedWindow, "100/minute", None, "global").unwrap();
        let retry = Retry { jitter, ..Retry::default() };
        // One wave of 300, half a minute before the first window ends.
        let traffic =
            Traffic { retry, duration: Span::from_minutes(4), ..Traffic::new(Shape::RetryStorm, fixed.rate) };
        let round = simulated(vec![fixed], Network::default(), traffic);
        let wave = round.algorithms[0].series.offered.iter().position(|it| *it > 0).unwrap();
        let back = round.algorithms[0].series.offered[wave + 1..].iter().max();
        back.copied().unwrap_or(0)
    };
    let (herd, spread) = (with(false), with(true));
    assert_eq!(herd, 200, "all that were refused are back at once");
    assert!((1..50).contains(&spread), "{spread} with jitter, {herd} without");
}

#[test]
fn separate_nodes_admit_the_limit_once_each() {
    let at_nodes = |nodes, store, routing| {
        let contestants = contestants("10/minute", By::Client);
        let traffic = Traffic { load: 20.0, ..Traffic::new(Shape::Steady, contestants[0].rate) };
        let round = simulated(contestants, Network { nodes, store, routing }, traffic);
        of(&round, Choice::SlidingLog).most_in_a_window
    };
    assert_eq!(at_nodes(1, Stores::Memory, Routing::RoundRobin), 10);
    assert_eq!(at_nodes(4, Stores::Memory, Routing::RoundRobin), 40);
    assert_eq!(at_nodes(4, Stores::Shared, Routing::RoundRobin), 10);
    // A sticky client always uses the same node.
    assert_eq!(at_nodes(4, Stores::Memory, Routing::Sticky), 10);
    // A fifth of ten over two nodes is one each.
    assert_eq!(at_nodes(2, Stores::Outage, Routing::RoundRobin), 2);
}

#[test]
fn the_admitted_share_is_reported_for_clients_with_a_shared_allowance() {
    let contestants: Vec<_> =
        [Choice::TokenBucket].map(|it| Contestant::new(it, "10/minute", None, "global").unwrap()).into();
    let rate = contestants[0].rate;
    let traffic = Traffic { clients: 5, by: By::Everybody, load: 3.0, ..Traffic::new(Shape::Poisson, rate) };
    let round = simulated(contestants, Network::default(), traffic);
    let it = &round.algorithms[0];
    let (least, most) = (it.least_served.unwrap(), it.most_served.unwrap());
    assert!(least < most && most < 1.0, "{least} to {most}");
    let alone = on("10/minute", Shape::Steady);
    assert_eq!(alone.algorithms[0].least_served, None);
}

#[test]
fn too_many_events_are_rejected_or_cut_short() {
    let contestants = contestants("100/minute", By::Everybody);
    let traffic = Traffic::new(Shape::RetryStorm, contestants[0].rate);
    let ask = |most_events, load| {
        let traffic = Traffic { load, ..traffic };
        let (contestants, network, notes) = (contestants.clone(), Network::default(), Vec::new());
        Simulation::new(Question { traffic, contestants, network, most_events, notes })
    };
    assert!(matches!(ask(700, 0.75), Err(QuestionError::TooMany { expected: 750, most: 700 })));
    let apart = Question {
        traffic: Traffic { by: By::Client, ..traffic },
        contestants: contestants.clone(),
        network: Network::default(),
        most_events: 1_000,
        notes: Vec::new(),
    };
    assert!(matches!(Simulation::new(apart), Err(QuestionError::Apart)));
    let round = ask(800, 0.75).unwrap().run();
    assert!(round.algorithms.iter().all(|it| it.offered <= 800));
    assert!(round.notes[0].starts_with("cut short after 800"), "{:?}", round.notes);
    assert!(round.traffic.unwrap().until_s < 600.0);
}

#[test]
fn an_error_says_what_to_do() {
    let wrong =
        |choice, rate, by| Contestant::new(choice, rate, None, by).err().expect("a mistake").to_string();
    for (said, expected) in [
        (wrong(Choice::FixedWindow, "10/minuet", "ip"), "did you mean `minute`?"),
        (wrong(Choice::FixedWindow, "ten a minute", "ip"), "rates look like"),
        (wrong(Choice::FixedWindow, "0/minute", "ip"), "zero"),
        (wrong(Choice::FixedWindow, "1/minute\"}]}", "ip"), "`minute\"}]}`"),
        (wrong(Choice::TokenBucket, "10/minute", "ipp"), "did you mean"),
        (wrong(Choice::SlidingLog, "100000/minute", "ip"), "65536"),
        (Choice::of("leaky").unwrap_err().to_string(), "there are fixed-window"),
        (Choice::of("fixed_window").unwrap_err().to_string(), "did you mean `fixed-window`?"),
    ] {
        assert!(said.contains(expected), "{said} does not say {expected}");
    }
}

#[test]
fn algorithms_that_do_not_accept_the_rate_are_left_out_with_a_note() {
    let (made, left_out) = Contestant::all("100000/minute", None, "ip").unwrap();
    // Without the queue, which is compared only on request.
    assert_eq!(made.len(), Choice::ALL.len() - 2);
    assert!(left_out[0].starts_with("sliding-log is left out"), "{left_out:?}");
    assert_eq!(Contestant::all("10/minuet", None, "ip").err().map(|it| it.about), Some(About::Rate));
    assert_eq!(Contestant::all("10/minute", None, "ipp").err().map(|it| it.about), Some(About::Key));
}

#[test]
fn a_log_runs_against_all_rates_and_algorithms_in_one_pass() {
    let both = contestants("2/10s", By::Client).into_iter().chain(contestants("5/10s", By::Client)).collect();
    let mut on_log = OnLog::new(both, 1_024);
    // Three in a second, at the end of a window and at the start of the next: six in two seconds.
    for at in [1_000_000_009, 1_000_000_009, 1_000_000_009, 1_000_000_010, 1_000_000_010, 1_000_000_010] {
        let mut entry = Entry::new(at * 1_000_000, "GET", "/");
        entry.client = Some([192, 0, 2, 1].into());
        on_log.entry(&entry).unwrap();
    }
    let rounds = on_log.rounds();
    assert_eq!(rounds.iter().map(|it| &*it.rate).collect::<Vec<_>>(), ["2/10s", "5/10s"]);
    let [two, five] = &rounds[..] else { panic!("two rates") };
    assert_eq!(of(two, Choice::FixedWindow).admitted, 4);
    assert_eq!(of(two, Choice::SlidingLog).admitted, 2);
    assert_eq!(of(five, Choice::SlidingLog).admitted, 5);
    let closed = of(two, Choice::FixedWindow).closed_loop.unwrap();
    assert_eq!((closed.too_lax, closed.too_strict, closed.requests), (2, 0, 6));
    assert_eq!(two.algorithms[0].series.offered.iter().sum::<u64>(), 6);
    assert!(two.traffic.is_none());
}

#[test]
fn charts_show_the_limit_the_window_ends_and_every_algorithm() {
    let round = on("10/minute", Shape::Edge);
    let chart = window(&round);
    assert_eq!(chart.series.len(), Choice::ALL.len());
    assert_eq!(chart.levels, [(10.0, "limit 10/minute".to_owned())]);
    assert_eq!(chart.moments.len(), 9);
    let highest = chart.series[0].points.iter().fold(0.0, |most: f64, it| most.max(it.1));
    assert!((highest - 20.0).abs() < 1e-9);
    let end = chart.series[0].points.last().unwrap().0;
    assert!((end - 10.0).abs() < 1e-9, "ten minutes, not {end}");
    assert_eq!(arrivals(&round).series.len(), Choice::ALL.len() + 1);
}

#[test]
fn the_json_has_the_documented_fields() {
    let report = serde_json::to_value(on("10/minute", Shape::RetryStorm)).unwrap();
    assert_eq!(report["rate"], "10/minute");
    assert_eq!(report["limit"], 10);
    assert_eq!(report["traffic"]["shape"], "retry-storm");
    assert_eq!(report["traffic"]["by"], "global");
    assert_eq!(report["traffic"]["retry"]["honours_retry_after"], true);
    assert_eq!(report["algorithms"][2]["algorithm"], "sliding-parts");
    for member in ["offered", "admitted", "refused", "most_in_a_window", "wasted_retries", "state_bytes"] {
        assert!(report["algorithms"][0][member].is_u64(), "{member}");
    }
    assert!(report["algorithms"][0]["closed_loop"]["too_lax"].is_u64());
    assert_eq!(report["algorithms"][0]["series"]["offered"].as_array().map(Vec::len), Some(240));
}

#[test]
fn a_date_of_1970_before_a_log_of_2015_changes_nothing_after_it() {
    const START: u64 = 1_431_857_100_000_000;
    let refused = |times: &[u64]| -> Vec<u64> {
        let mut on_log = OnLog::new(contestants("2/10s", By::Client), 1_024);
        for &at in times {
            let mut entry = Entry::new(at, "GET", "/");
            entry.client = Some([203, 0, 113, 9].into());
            on_log.entry(&entry).unwrap();
        }
        on_log.rounds()[0].algorithms.iter().map(|it| it.refused).collect()
    };
    let times = [5, START, START, START, START + 30_000_000];
    assert_eq!(refused(&times), refused(&times[1..]));
}

#[test]
fn a_queue_spreads_a_burst_and_says_how_long_its_requests_wait() {
    let round = on("10/second", Shape::Edge);
    let queue = of(&round, Choice::LeakyQueue);
    assert!(queue.most_in_a_window <= round.limit + 1, "{} in a second", queue.most_in_a_window);
    let waits = queue.waits.expect("it has a queue");
    assert!(waits.delayed > 0 && waits.max_ms <= 1_000, "{waits:?}");
    assert!(waits.p50_ms <= waits.p90_ms && waits.p90_ms <= waits.p99_ms && waits.p99_ms <= waits.max_ms);
    assert!(queue.words.contains("had to wait"), "{}", queue.words);
    assert!(of(&round, Choice::TokenBucket).waits.is_none());
    let longer = Contestant::new(Choice::LeakyQueue, "10/second, burst 50", None, "ip").unwrap();
    assert_eq!(longer.quota().to_string(), "leaky-queue 10/second, queue of 50");
    let (all, _) = Contestant::all("10/second", None, "ip").unwrap();
    assert!(all.iter().all(|it| it.choice != Choice::LeakyQueue), "only on request");
}
