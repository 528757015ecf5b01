//! Servers that lie: everything is bounded, and nothing panics.

use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, Uri};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tollgate_client::{Call, CallOptions};

use crate::servers::{Counting, Dialect, Server, client, run};

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_an_hour_off_changes_nothing() {
    for ahead in [3_600_000_000, -3_600_000_000, 86_400_000_123] {
        let (client, clock) = client(|_| {});
        let mut server = Server::new(Counting::Aligned(1_000.0, 5.0), Dialect::GitHub, clock);
        server.ahead = ahead;
        let succeeded = run(&client, &server, 50, 5_000, &["http://api.test/items"]).await;
        let report = server.report();
        assert_eq!(succeeded, 5_000);
        assert!(report.refused <= 50, "{ahead}: {} refused", report.refused);
        assert!(report.seconds < 26.0, "{ahead}: {} s", report.seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_that_change_their_name_are_bounded() {
    let (client, _) = client(|settings| settings.max_buckets = 100);
    let headers = HeaderMap::new();
    for number in 0..2_000 {
        let uri: Uri = format!("http://api.test/items{number}/x").parse().unwrap();
        let call = Call::new(&Method::GET, &uri, &headers);
        let answer = client.call(&call, |_| async {
            let mut response = Response::new(());
            let put = [
                ("x-ratelimit-bucket", format!("b{number}")),
                ("x-ratelimit-limit", "10".to_owned()),
                ("x-ratelimit-remaining", "9".to_owned()),
                ("x-ratelimit-reset-after", "3600".to_owned()),
            ];
            for (name, value) in put {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            Ok::<_, std::io::Error>(response)
        });
        assert!(answer.await.is_ok());
        assert!(client.buckets() <= 101, "{}", client.buckets());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any sequence of answers: each call ends within its time, and attempts are bounded.
    #[test]
    fn every_call_ends_in_time(answers in prop::collection::vec(
        (prop::sample::select(vec![200_u16, 200, 403, 429, 429, 500, 503]), "[0-9]{0,12}", "[0-9]{0,4}", "[0-9]{0,11}", "[0-9]{1,3}"),
        1..30,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (client, _) = client(|_| {});
            let (uri, headers): (Uri, _) = ("http://api.test/items".parse().unwrap(), HeaderMap::new());
            let mut tasks = Vec::new();
            for task in 0..5 {
                let (client, answers, uri, headers) = (client.clone(), answers.clone(), uri.clone(), headers.clone());
                tasks.push(tokio::spawn(async move {
                    let mut attempts = 0_usize;
                    for number in 0..6 {
                        let start = Instant::now();
                        let options = CallOptions::default().timeout(Duration::from_secs(30));
                        let call = Call::new(&Method::GET, &uri, &headers).options(options);
                        let _result = client.call(&call, |_| {
                            attempts += 1;
                            let (status, limit, remaining, reset, wait) = &answers[(attempts + task + number) % answers.len()];
                            let mut response = Response::new(());
                            *response.status_mut() = StatusCode::from_u16(*status).unwrap();
                            let put = [("x-ratelimit-limit", limit), ("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
                            for (name, value) in put {
                                response.headers_mut().insert(name, value.parse().unwrap());
                            }
                            if *status >= 400 {
                                response.headers_mut().insert("retry-after", wait.parse().unwrap());
                            }
                            async move {
                                sleep(Duration::from_millis(3)).await;
                                Ok::<_, std::io::Error>(response)
                            }
                        }).await;
                        assert!(start.elapsed() <= Duration::from_millis(30_050), "{:?}", start.elapsed());
                    }
                    attempts
                }));
            }
            for task in tasks {
                assert!(task.await.unwrap() <= 6 * 20);
            }
            assert_eq!(client.waiting(), 0);
        });
    }
}
