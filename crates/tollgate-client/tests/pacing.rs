//! 100 tasks against one limit, in every dialect: everything succeeds, few refusals, and the limit is used.

use crate::servers::{Counting, Dialect, Server, client, run};

const ONE: &[&str] = &["http://api.test/items"];

async fn check(counting: Counting, dialect: Dialect, max_refused: usize, min_used: f64) {
    let (client, clock) = client(|_| {});
    let server = Server::new(counting, dialect, clock);
    let calls = 10_000;
    let succeeded = run(&client, &server, 100, calls, ONE).await;
    let report = server.report();
    let rate = match counting {
        Counting::Refill(_, rate) => rate,
        Counting::Window(units, seconds) | Counting::Aligned(units, seconds) => units / seconds,
    };
    #[allow(clippy::cast_precision_loss)]
    let used = calls as f64 / rate / report.seconds;
    println!(
        "{dialect:?} {counting:?}: {} of {} refused ({} later), used {used:.3}, {:.1} s, shape {:?}",
        report.refused, report.calls, report.refused_later, report.seconds, client.counts()
    );
    if std::env::var_os("TOLLGATE_LOOK").is_some() {
        return;
    }
    assert_eq!(succeeded, calls, "{dialect:?} {counting:?}");
    assert!(report.refused <= max_refused, "{dialect:?} {counting:?}: {} refused", report.refused);
    assert!(used >= min_used, "{dialect:?} {counting:?}: {used:.3} of the limit used");
    assert_eq!(report.early, 0);
}

#[tokio::test(start_paused = true)]
async fn buckets_that_refill_are_used_at_their_rate() {
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::OpenAi] {
        check(Counting::Refill(500.0, 500.0), dialect, 100, 0.97).await;
        check(Counting::Refill(100.0, 500.0), dialect, 100, 0.97).await;
        check(Counting::Refill(3_000.0, 50.0), dialect, 100, 0.97).await;
    }
}

#[tokio::test(start_paused = true)]
async fn windows_are_used_up() {
    for dialect in [Dialect::Ietf, Dialect::Tollgate, Dialect::GitHub, Dialect::Discord] {
        check(Counting::Window(500.0, 1.0), dialect, 100, 0.97).await;
        check(Counting::Window(1_000.0, 5.0), dialect, 100, 0.97).await;
        check(Counting::Aligned(1_000.0, 5.0), dialect, 100, 0.97).await;
    }
}
