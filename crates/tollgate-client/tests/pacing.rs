//! 100 tasks against one limit, in every dialect: everything succeeds, few refusals, and the limit is used.

use std::time::Duration;

use crate::servers::{Counting, Dialect, Server, client, run};

const ONE: &[&str] = &["http://api.test/items"];
const CALLS: usize = 10_000;

/// Runs the calls, and checks the refusals and the share of the limit that was used.
async fn check(counting: Counting, dialect: Dialect, max_refused: usize, min_used: f64) {
    let (client, clock) = client(|settings| settings.timeout = Duration::from_secs(600));
    let server = Server::new(counting, dialect, clock);
    let succeeded = run(&client, &server, 100, CALLS, ONE).await;
    let report = server.report();
    let rate = match counting {
        Counting::Refill(_, rate) => rate,
        Counting::Window(units, seconds) | Counting::Aligned(units, seconds) => units / seconds,
    };
    #[allow(clippy::cast_precision_loss)]
    let used = CALLS as f64 / rate / report.seconds;
    let text =
        format!("{dialect:?} {counting:?}: {} of {} refused, used {used:.3}", report.refused, report.calls);
    println!("{text}");
    assert_eq!((succeeded, report.early), (CALLS, 0), "{text}");
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
