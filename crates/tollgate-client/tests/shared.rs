//! Several clients with one budget.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Limiter, MemoryStore, Policy, Sleeper, Spawner};
use tollgate_client::{Client, SharedBudget};

use crate::servers::{Counting, Dialect, Server, TokioClock, run};

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_budget_are_not_refused_and_use_it() {
    let clock = TokioClock(tokio::time::Instant::now());
    let server = Server::new(Counting::Refill(60.0, 500.0), Dialect::Silent, clock);
    let policy =
        Policy::parse("limits: [{name: partner, by: global, bucket: '500/second, burst 20'}]").unwrap();
    let store = MemoryStore::with_clock(1_000, clock);
    let limiter = Limiter::with_store(policy, store).with_sleeper(Sleeper::new(sleep));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let spawner = Spawner::new(|work| drop(tokio::spawn(work)));
        let client = Client::builder()
            .clock(clock)
            .sleeper(Sleeper::new(sleep))
            .settings(|it| it.timeout = Duration::from_secs(600))
            .budget(SharedBudget::new(limiter.clone(), spawner))
            .build();
        let server = server.clone();
        workers.push(tokio::spawn(async move {
            run(&client, &server, 25, 2_500, &["http://api.test/items"]).await
        }));
    }
    for worker in workers {
        assert_eq!(worker.await.unwrap(), 2_500);
    }
    let report = server.report();
    let used = 10_000.0 / 500.0 / report.seconds;
    println!("{} of {} refused, {used:.3} of the limit used", report.refused, report.calls);
    assert!(report.refused <= 50, "{} refused", report.refused);
    assert!(used >= 0.95, "{used}");
}
