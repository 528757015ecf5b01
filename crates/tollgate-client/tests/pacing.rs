//! 100 tasks against one limit, in every dialect: everything succeeds, few refusals, and the limit is used.

use std::time::Duration;

use tokio::time::sleep;

use crate::servers::{Counting, Dialect, Rounding, Server, client, run};

const ONE: &[&str] = &["http://api.test/items"];

/// The calls of a run, and the time before the first one.
#[derive(Clone, Copy)]
struct Load {
    calls: usize,
    delay: Duration,
}

const LOAD: Load = Load { calls: 10_000, delay: Duration::ZERO };

/// Runs the calls, and checks the refusals and the share of the limit that was used.
async fn check(counting: Counting, dialect: Dialect, max_refused: usize, min_used: f64) {
    check_server(counting, dialect, max_refused, min_used, |_| {}).await;
}

async fn check_server(
    counting: Counting,
    dialect: Dialect,
    max_refused: usize,
    min_used: f64,
    change: impl FnOnce(&mut Server),
) {
    check_load(LOAD, counting, dialect, max_refused, min_used, change).await;
}

async fn check_load(
    load: Load,
    counting: Counting,
    dialect: Dialect,
    max_refused: usize,
    min_used: f64,
    change: impl FnOnce(&mut Server),
) {
    let (client, clock) = client(|settings| settings.timeout = Duration::from_secs(600));
    let mut server = Server::new(counting, dialect, clock);
    change(&mut server);
    sleep(load.delay).await;
    let succeeded = run(&client, &server, 100, load.calls, ONE).await;
    let report = server.report();
    let rate = match counting {
        Counting::Refill(_, rate) => rate,
        Counting::Window(units, seconds)
        | Counting::Aligned(units, seconds)
        | Counting::Phased(units, seconds)
        | Counting::WholeSecond(units, seconds) => units / seconds,
    };
    #[allow(clippy::cast_precision_loss)]
    let used = load.calls as f64 / rate / report.seconds;
    let text = format!(
        "{dialect:?} {counting:?} {:?}, retry-after: {}, date: {}: {} of {} refused, used {used:.3}",
        server.rounding, server.has_retry_after, server.has_date, report.refused, report.calls
    );
    println!("{text}");
    assert_eq!((succeeded, report.early), (load.calls, 0), "{text}");
    assert!(report.refused <= max_refused && used >= min_used, "{text}");
}

#[tokio::test(start_paused = true)]
async fn buckets_that_refill_are_used_at_their_rate() {
    check(Counting::Refill(100.0, 500.0), Dialect::OpenAi, 10, 0.97).await;
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::OpenAi] {
        check(Counting::Refill(500.0, 500.0), dialect, 10, 0.97).await;
        check(Counting::Refill(3_000.0, 50.0), dialect, 10, 0.97).await;
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_with_a_small_burst_are_used_at_their_rate() {
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::OpenAi] {
        check(Counting::Refill(20.0, 500.0), dialect, 10, 0.97).await;
        check(Counting::Refill(10.0, 200.0), dialect, 10, 0.97).await;
    }
}

#[tokio::test(start_paused = true)]
async fn windows_are_used_up() {
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::GitHub, Dialect::Discord] {
        check(Counting::Aligned(1_000.0, 5.0), dialect, 10, 0.97).await;
        check(Counting::Aligned(2_000.0, 10.0), dialect, 10, 0.97).await;
    }
    // A window that begins with a request ends between two seconds; a date does not tell when.
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::Discord] {
        check(Counting::Window(1_000.0, 5.0), dialect, 10, 0.97).await;
    }
    check(Counting::Window(500.0, 1.0), Dialect::Discord, 10, 0.97).await;
    // The refusal that tells the shape of the bucket costs a second of twenty.
    check(Counting::Window(500.0, 1.0), Dialect::Ietf, 10, 0.95).await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_no_header_tells_is_found() {
    check(Counting::Refill(100.0, 500.0), Dialect::RetryAfter, 500, 0.5).await;
}

#[tokio::test(start_paused = true)]
async fn routes_that_share_a_bucket_share_its_model() {
    let (client, clock) = client(|_| {});
    let server = Server::new(Counting::Aligned(500.0, 5.0), Dialect::GitHub, clock);
    const ROUTES: &[&str] =
        &["http://api.test/a", "http://api.test/b", "http://api.test/users/ann", "http://api.test/x/7"];
    let succeeded = run(&client, &server.one_bucket(), 40, 2_000, ROUTES).await;
    let report = server.report();
    assert_eq!((succeeded, report.early), (2_000, 0));
    assert!(report.refused <= 10, "{} refused", report.refused);
}

/// The windows of naive servers, which announce their reset as a date in whole seconds.
#[tokio::test(start_paused = true)]
async fn windows_with_dates_in_whole_seconds_are_used_up() {
    for counting in [
        Counting::Window(1_000.0, 5.0),
        Counting::Window(1_000.0, 2.0),
        Counting::Window(500.0, 1.0),
        Counting::Phased(1_000.0, 5.0),
        Counting::Aligned(500.0, 1.0),
        Counting::Aligned(1_000.0, 5.0),
        Counting::WholeSecond(1_000.0, 5.0),
    ] {
        for rounding in [Rounding::Up, Rounding::Down, Rounding::Nearest] {
            for (has_retry_after, has_date) in [(false, true), (true, true), (false, false)] {
                // Only a call at the date tells that the date is rounded down. Its refusal says to wait for a whole
                // second, which is 5 % of a run of 20 seconds: 0.97 needs a longer run.
                let is_short = matches!(counting, Counting::Window(_, seconds) if seconds < 5.0);
                let calls = if is_short && has_retry_after { 3 * LOAD.calls } else { LOAD.calls };
                let load = Load { calls, ..LOAD };
                check_load(load, counting, Dialect::GitHub, 100, 0.97, |server| {
                    server.rounding = rounding;
                    (server.has_retry_after, server.has_date) = (has_retry_after, has_date);
                })
                .await;
            }
        }
    }
}

/// The first call of a window falls on any fraction of a second, and so does the end.
#[tokio::test(start_paused = true)]
async fn windows_that_begin_between_two_seconds_are_used_up() {
    for millis in [130, 620, 930] {
        let load = Load { delay: Duration::from_millis(millis), ..LOAD };
        for rounding in [Rounding::Up, Rounding::Down, Rounding::Nearest] {
            check_load(load, Counting::Window(1_000.0, 5.0), Dialect::GitHub, 100, 0.97, |server| {
                (server.rounding, server.has_retry_after) = (rounding, false);
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_against_bursts_that_no_header_shows_is_not_met_twice() {
    // GitHub: 900 points a minute beside 5,000 requests an hour, in small.
    check_server(Counting::Window(1_000.0, 5.0), Dialect::GitHub, 100, 0.97, |server| {
        server.secondary = Some((180, 5.0 / 60.0));
        server.has_retry_after = false;
    })
    .await;
    // A window stays as it is although a burst was refused.
    check_server(Counting::Window(1_000.0, 5.0), Dialect::GitHub, 200, 0.85, |server| {
        server.secondary = Some((60, 5.0 / 60.0));
        server.has_retry_after = false;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_all_routes_that_no_header_shows_is_found() {
    const CHANNELS: &[&str] = &[
        "http://api.test/channels/100000000000000001/messages",
        "http://api.test/channels/100000000000000002/messages",
        "http://api.test/channels/100000000000000003/messages",
        "http://api.test/channels/100000000000000004/messages",
    ];
    let (client, clock) = client(|_| {});
    let mut server = Server::new(Counting::Window(100.0, 1.0), Dialect::Discord, clock);
    server.global = Some(50.0);
    let succeeded = run(&client, &server, 100, 5_000, CHANNELS).await;
    let report = server.report();
    let used = 5_000.0 / 50.0 / report.seconds;
    println!("{} of {} refused, {} early, used {used:.3}", report.refused, report.calls, report.early);
    assert_eq!((succeeded, report.early), (5_000, 0));
    assert!(report.refused <= 200 && used >= 0.95, "{} refused, used {used:.3}", report.refused);
}

#[tokio::test(start_paused = true)]
async fn tokens_of_unknown_cost_are_used_at_their_rate() {
    let (client, clock) = client(|settings| settings.timeout = Duration::from_secs(600));
    let mut server = Server::new(Counting::Refill(1_000.0, 1_000.0), Dialect::OpenAi, clock);
    // 40 tokens a call: 250 calls per second.
    server.tokens = Some((20_000.0, 10_000.0));
    let succeeded = run(&client, &server, 100, 10_000, ONE).await;
    let report = server.report();
    let used = (10_000.0 * 40.0 - 20_000.0) / 10_000.0 / report.seconds;
    println!("{} of {} refused, {} early, used {used:.3}", report.refused, report.calls, report.early);
    assert_eq!((succeeded, report.early), (10_000, 0));
    assert!(report.refused <= 100 && used >= 0.97, "{} refused, used {used:.3}", report.refused);
}
