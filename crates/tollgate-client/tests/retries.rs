//! Retries: the budget, the breaker, deadlines, and safe methods.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, Uri};
use tokio::time::{Instant, sleep};
use tollgate::Sleeper;
use tollgate_client::budget::{Budget, BudgetRequest, Reservation, ReserveFuture};
use tollgate_client::retry::{BreakerSettings, RetryBudgetSettings};
use tollgate_client::{Call, CallOptions, Client, Error, GaveUpCause, Settings};

use crate::servers::{TokioClock, client};

fn uri() -> Uri {
    "http://api.test/items".parse().unwrap()
}

fn response(status: u16, headers: &[(&'static str, &str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

/// The result of 50 clients that call a server which fails from second 5 to second 15.
struct Storm {
    /// Attempts per second, before, during and after the failure.
    load: [f64; 3],
    /// The time from the end of the failure until calls succeed as before.
    recovery: Duration,
}

async fn storm(change: fn(&mut Settings)) -> Storm {
    const CALLS_PER_SECOND: u64 = 10;
    let start = Instant::now();
    let log: Arc<Mutex<Vec<f64>>> = Arc::default();
    let succeeded: Arc<Mutex<Vec<f64>>> = Arc::default();
    let mut tasks = Vec::new();
    for number in 0..50_u64 {
        let (client, _) = client(change);
        let (log, succeeded) = (Arc::clone(&log), Arc::clone(&succeeded));
        tasks.push(tokio::spawn(async move {
            sleep(Duration::from_micros(number * 2_000)).await;
            let mut calls = Vec::new();
            for _ in 0..25 * CALLS_PER_SECOND {
                let (client, log, succeeded) = (client.clone(), Arc::clone(&log), Arc::clone(&succeeded));
                calls.push(tokio::spawn(async move {
                    let (uri, headers) = (uri(), HeaderMap::new());
                    let call = Call::new(&Method::GET, &uri, &headers);
                    let answer = client.call(&call, |_| async {
                        let at = start.elapsed().as_secs_f64();
                        log.lock().unwrap().push(at);
                        sleep(Duration::from_millis(5)).await;
                        let status = if (5.0..15.0).contains(&at) { 503 } else { 200 };
                        Ok::<_, std::io::Error>(response(status, &[]))
                    });
                    if answer.await.is_ok_and(|it| it.status().is_success()) {
                        succeeded.lock().unwrap().push(start.elapsed().as_secs_f64());
                    }
                }));
                sleep(Duration::from_millis(1_000 / CALLS_PER_SECOND)).await;
            }
            for call in calls {
                call.await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let log = log.lock().unwrap();
    let rate = |from: f64, to: f64| {
        #[allow(clippy::cast_precision_loss)]
        let count = log.iter().filter(|at| (from..to).contains(*at)).count() as f64;
        count / (to - from)
    };
    let succeeded = succeeded.lock().unwrap();
    // Recovered: the first tenth of a second with nine tenths of the usual successes.
    let usual = 50 * usize::try_from(CALLS_PER_SECOND).unwrap() / 10;
    let recovered = (0..100).map(f64::from).map(|step| 15.0 + step / 10.0).find(|from| {
        succeeded.iter().filter(|at| (*from..from + 0.1).contains(*at)).count() * 10 >= usual * 9
    });
    let recovery = Duration::from_secs_f64(recovered.unwrap_or(60.0) - 15.0);
    Storm { load: [rate(1.0, 5.0), rate(5.0, 15.0), rate(17.0, 24.0)], recovery }
}

#[tokio::test(start_paused = true)]
async fn a_failing_server_is_not_loaded_more_and_recovers_within_two_seconds() {
    let with = storm(|_| {}).await;
    let without_breaker = storm(|settings| settings.breaker.failures = 0).await;
    let without = storm(|settings| {
        settings.breaker = BreakerSettings { failures: 0, ..settings.breaker };
        settings.retry_budget = RetryBudgetSettings { share: 1e9, reserve: 1e9, max: 1e9 };
        settings.tries = 4;
    })
    .await;
    for (name, storm) in [("budget and breaker", &with), ("budget", &without_breaker), ("neither", &without)]
    {
        println!("{name}: load {:.0?} calls/s, recovery {:?}", storm.load, storm.recovery);
    }
    for storm in [&with, &without_breaker] {
        assert!(storm.load[1] <= 1.2 * storm.load[0], "{:?}", storm.load);
        assert!(storm.recovery <= Duration::from_secs(2), "{:?}", storm.recovery);
    }
    assert!(without.load[1] >= 3.0 * without.load[0], "{:?}", without.load);
}

/// Calls a server that always answers alike. Returns the result, the attempts and the time.
async fn call(
    client: &Client,
    method: Method,
    options: CallOptions,
    answer: (u16, &[(&'static str, &str)]),
) -> (Result<StatusCode, Error<std::io::Error>>, usize, Duration) {
    let (tries, start, uri, headers) = (AtomicUsize::new(0), Instant::now(), uri(), HeaderMap::new());
    let call = Call::new(&method, &uri, &headers).options(options);
    let result = client.call(&call, |_| async {
        tries.fetch_add(1, Ordering::SeqCst);
        Ok(response(answer.0, answer.1))
    });
    let result = result.await.map(|it| it.status());
    (result, tries.load(Ordering::SeqCst), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn only_safe_calls_are_retried_after_failures() {
    for (method, options, tries) in [
        (Method::GET, CallOptions::default(), 4),
        (Method::POST, CallOptions::default(), 1),
        (Method::POST, CallOptions::default().idempotent(), 4),
    ] {
        let (client, _) = client(|_| {});
        let (result, made, _) = call(&client, method.clone(), options, (500, &[])).await;
        assert_eq!(
            (result.unwrap().as_u16(), made),
            (500, tries),
            "{method}: the reserve of the budget is 3"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_exceeds_the_deadline_is_given_up_at_once_and_says_why() {
    let (client, _) = client(|_| {});
    let far = [
        ("retry-after", "1000000000"),
        ("retry-after", "999999999999999999999"),
        ("retry-after", "Sun, 07 Feb 2106 06:28:15 GMT"),
        ("retry-after-ms", "18446744073709551615"),
        ("x-amz-retry-after", "99999999999"),
        ("x-ratelimit-reset", "4294967295"),
    ];
    for (header, wait) in far {
        let headers = [(header, wait), ("x-ratelimit-remaining", "0")];
        let (result, tries, took) = call(&client, Method::GET, CallOptions::default(), (429, &headers)).await;
        let Err(Error::GaveUp(gave_up)) = result else { panic!("{wait}: {result:?}") };
        assert!(matches!(gave_up.cause, GaveUpCause::Bucket { .. }), "{gave_up}");
        assert!(gave_up.to_string().starts_with("gave up a call to api.test after"), "{gave_up}");
        assert!(tries <= 1 && took < Duration::from_millis(10), "{wait}: {tries} tries in {took:?}");
        // The bucket is blocked for at most an hour, whatever the server says.
        sleep(Duration::from_secs(3_601)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_without_a_usable_wait_are_bounded_by_tries_and_time() {
    for headers in [
        &[][..],
        &[("retry-after", "0")],
        &[("retry-after", "-5")],
        &[("retry-after", "NaN")],
        &[("retry-after", "1e9")],
        &[("retry-after", "5, 7")],
        &[("retry-after-ms", "-1")],
        &[("x-ratelimit-limit", "-1"), ("x-ratelimit-remaining", "NaN"), ("x-ratelimit-reset", "-Infinity")],
        &[("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "99"), ("x-ratelimit-reset-after", "NaN")],
        &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")],
        &[("x-ratelimit-limit", "0"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "0")],
        &[("ratelimit-policy", "\"a\";q=0;w=0"), ("ratelimit", "\"a\";r=0;t=0")],
        &[
            ("x-ratelimit-limit-requests", "1"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "0s"),
        ],
    ] {
        let (client, _) = client(|_| {});
        let (result, tries, took) = call(&client, Method::GET, CallOptions::default(), (429, headers)).await;
        assert!(tries <= 20, "{headers:?}: {tries}");
        assert!(took <= Duration::from_secs(61), "{headers:?}: {took:?}");
        assert!(took >= Duration::from_millis(400), "{headers:?}: {tries} tries in {took:?}, {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_for_ever_ends_in_its_own_response_or_an_open_breaker() {
    let (client, _) = client(|_| {});
    let mut opened = 0;
    for _ in 0..100 {
        match call(&client, Method::GET, CallOptions::default(), (503, &[("retry-after", "1")])).await.0 {
            Ok(status) => assert_eq!(status.as_u16(), 503),
            Err(Error::GaveUp(gave_up)) => {
                assert!(matches!(gave_up.cause, GaveUpCause::BreakerOpen { .. }), "{gave_up}");
                opened += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(opened > 50, "{opened}");
}

/// A budget that counts: reservations take half a second.
#[derive(Clone, Default)]
struct SlowBudget {
    reserved: Arc<AtomicUsize>,
    canceled: Arc<AtomicUsize>,
}

impl Budget for SlowBudget {
    fn reserve<'b>(&'b self, _request: &'b BudgetRequest, _max_wait: Duration) -> ReserveFuture<'b> {
        Box::pin(async move {
            self.reserved.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(500)).await;
            Ok(Box::new(self.clone()) as Box<dyn Reservation>)
        })
    }
}

impl Reservation for SlowBudget {
    fn settle(self: Box<Self>, _status: StatusCode, _headers: &HeaderMap, _is_refusal: bool) {}

    fn cancel(self: Box<Self>) {
        self.canceled.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn shared_units_are_given_back_if_a_refusal_delays_their_call() {
    let budget = SlowBudget::default();
    let client = Client::builder()
        .clock(TokioClock(Instant::now()))
        .sleeper(Sleeper::new(sleep))
        .budget(budget.clone())
        .build();
    let send = async |at: u64, status: u16, wait: &'static str| {
        sleep(Duration::from_millis(at)).await;
        let (uri, headers) = (uri(), HeaderMap::new());
        let call = Call::new(&Method::GET, &uri, &headers);
        let answer = client.call(&call, |number| async move {
            let status = if number == 1 { status } else { 200 };
            Ok::<_, std::io::Error>(response(status, &[("retry-after", wait)]))
        });
        assert!(answer.await.is_ok_and(|it| it.status().is_success()));
    };
    // The first call is refused at 500 ms, while the second one waits for its reservation.
    tokio::join!(send(0, 429, "5"), send(200, 200, "0"));
    assert_eq!(budget.canceled.load(Ordering::Relaxed), 1);
    // Two attempts of the first call, one of the second, which reserved twice.
    assert_eq!(budget.reserved.load(Ordering::Relaxed), 4);
    assert_eq!(client.counts().sent, 3);
}
