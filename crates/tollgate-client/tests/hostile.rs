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

/// A number as servers lie about it: any digits, or a text that is none.
fn number(max_digits: usize) -> impl Strategy<Value = String> {
    let lies = ["NaN", "-1", "-0", "inf", "1e9", "", "0", "1, 2", "4294967295", "18446744073709551616"];
    let dates = ["Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 07 Feb 2106 06:28:15 GMT", "6m0s", "-20ms"];
    let texts: Vec<String> = lies.iter().chain(&dates).map(ToString::to_string).collect();
    let digits = prop::string::string_regex(&format!("[0-9]{{0,{max_digits}}}")).unwrap();
    prop_oneof![3 => digits, 1 => prop::sample::select(texts)]
}

/// Headers on answers that are no refusals do not stop a client for longer than the time of its calls.
#[tokio::test(start_paused = true)]
async fn lies_of_a_server_that_answers_cost_bounded_time() {
    let headers = HeaderMap::new();
    let uri: Uri = "http://api.test/items".parse().unwrap();
    let lies: [&[(&str, &str)]; 8] = [
        &[("x-ratelimit-limit", "0"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")],
        &[
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", "18446744073709551615"),
            ("x-ratelimit-reset", "1"),
        ],
        &[("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "-1")],
        &[("x-ratelimit-limit", "NaN"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "NaN")],
        &[("ratelimit-policy", "\"a\";q=999999999999999;w=1"), ("ratelimit", "\"a\";r=0;t=0")],
        &[("ratelimit-policy", "\"a\";q=1;w=999999999999999"), ("ratelimit", "\"a\";r=1;t=0")],
        &[
            ("x-ratelimit-limit-requests", "1"),
            ("x-ratelimit-remaining-requests", "9"),
            ("x-ratelimit-reset-requests", "0s"),
        ],
        &[
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "5"),
            ("x-ratelimit-reset", "4294967295"),
            ("x-ratelimit-bucket", "a"),
        ],
    ];
    for lie in lies {
        let (client, _) = client(|_| {});
        for _ in 0..20 {
            let start = Instant::now();
            let options = CallOptions::default().timeout(Duration::from_secs(10));
            let call = Call::new(&Method::GET, &uri, &headers).options(options);
            let result = client.call(&call, |_| async {
                let mut response = Response::new(());
                for (name, value) in lie {
                    response.headers_mut().insert(*name, value.parse().unwrap());
                }
                Ok::<_, std::io::Error>(response)
            });
            // A call that is given up says so; the next one is tried all the same.
            let result = result.await.map(|it| it.status()).map_err(|error| error.to_string());
            let took = start.elapsed();
            assert!(took <= Duration::from_millis(10_050), "{lie:?}: {took:?}, {result:?}");
        }
        assert_eq!(client.waiting(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any sequence of answers: each call ends within its time, and attempts are bounded.
    #[test]
    fn every_call_ends_in_time(answers in prop::collection::vec(
        (prop::sample::select(vec![200_u16, 200, 403, 429, 429, 500, 503]), number(12), number(4), number(11), number(3)),
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
