//! A proxy between a client and the gateway that records the requests and their times.
//!
//! All assertions use these times, and are robust against delays of the machine: a refusal counts from
//! before it was forwarded, and a decision was made at some moment between the arrival of a request and
//! its response.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use super::wire;

/// Timers of some runtimes have millisecond resolution, and fire up to that much early.
const TIMER: Duration = Duration::from_millis(2);

/// A request and its response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// `false` for the requests that use up the limit beforehand.
    of_client: bool,
    arrived: Instant,
    answered: Instant,
    status: u16,
    /// The exact wait of a refusal.
    wait: Option<Duration>,
}

impl Exchange {
    pub(crate) fn is_refusal(&self) -> bool {
        self.of_client && self.status == 429
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.status == 200
    }
}

/// A tap in front of a gateway.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Exchange>>>,
}

impl Tap {
    /// Creates a tap that sends `burst` requests before the first request of the client, so that the
    /// client finds nothing left, however long it took to start.
    pub(crate) fn before(gateway: SocketAddr, burst: usize) -> Self {
        let seen: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let (notes, used_up) = (Arc::clone(&seen), Once::new());
        let pass = move |request: &[u8], of_client: bool| {
            let arrived = Instant::now();
            let answer = wire::exchange(gateway, request).expect("the gateway answers");
            let wait = wire::header(&answer, "retry-after-ms").and_then(|it| it.parse().ok());
            let (answered, status) = (Instant::now(), wire::status(&answer));
            let wait = wait.map(Duration::from_millis);
            notes.lock().unwrap().push(Exchange { of_client, arrived, answered, status, wait });
            answer
        };
        let address = wire::serve(move |request| {
            used_up.call_once(|| {
                for _ in 0..burst {
                    pass(b"GET /used-up HTTP/1.1\r\nhost: tollgate\r\n\r\n", false);
                }
            });
            wire::with_close(&pass(&request, true))
        });
        Self { address, seen }
    }

    /// Returns all exchanges.
    pub(crate) fn seen(&self) -> Vec<Exchange> {
        self.seen.lock().unwrap().clone()
    }
}

/// Asserts that no retry is early. Clients here are sequential, so the request after a refusal is its
/// retry.
#[track_caller]
pub(crate) fn assert_none_is_early(seen: &[Exchange]) {
    for pair in seen.windows(2) {
        let [refused, next] = pair else { continue };
        if let Some(wait) = refused.wait.filter(|_| refused.is_refusal()) {
            let since = next.arrived - refused.answered;
            assert!(since + TIMER >= wait, "back after {since:?} and told to wait {wait:?}: {seen:#?}");
        }
    }
}

/// Asserts that in any interval at most the capacity and the units that arrived meanwhile were
/// admitted.
#[track_caller]
pub(crate) fn assert_limit_holds(seen: &[Exchange], burst: usize, one_comes_back: Duration) {
    let admitted: Vec<_> = seen.iter().filter(|it| it.is_admitted()).collect();
    for (first, start) in admitted.iter().enumerate() {
        for (count, end) in admitted[first..].iter().enumerate().skip(burst) {
            let needed = one_comes_back * u32::try_from(count + 1 - burst).unwrap();
            let most = end.answered - start.arrived;
            assert!(most >= needed, "{} admitted within {most:?}: {seen:#?}", count + 1);
        }
    }
}
