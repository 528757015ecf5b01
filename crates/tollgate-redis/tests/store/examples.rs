//! The example of the crate prints the output in its README.

use std::time::Duration;

use tollgate_testkit::Redis;

#[allow(dead_code, unreachable_pub, reason = "an example is a program of its own")]
#[path = "../../examples/fleet.rs"]
mod fleet;

#[tokio::test]
async fn two_nodes_of_the_example_admit_five_requests_together() {
    let redis = Redis::start();
    let mut lines = Vec::new();
    // On a busy machine, the first call may take longer than the deadline of the example.
    for _ in 0..100 {
        lines = fleet::run(&redis.url()).await.unwrap();
        redis.cli(&["FLUSHALL"]);
        if !lines.iter().any(|line| line.contains("locally")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let admitted: Vec<_> = lines.iter().filter(|line| line.contains("admitted")).collect();
    assert_eq!(
        admitted,
        [
            "node 1: admitted, 4 left",
            "node 2: admitted, 3 left",
            "node 1: admitted, 2 left",
            "node 2: admitted, 1 left",
            "node 1: admitted, 0 left"
        ],
        "{lines:?}"
    );
    assert!(lines[5..].iter().all(|line| line.contains("refused, retry in")), "{lines:?}");
}
