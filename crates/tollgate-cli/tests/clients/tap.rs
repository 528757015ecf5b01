//! Stands between a client and the gateway, and writes down what passes, and when.
//!
//! Everything is judged by these times, not by what clients say of themselves,
//! and so that no delay of this machine can turn a good client into a bad one:
//! a refusal counts from before it was passed on, and a decision was made at some
//! moment between a request's arrival and its answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use crate::wire;

/// Timers of some runtimes count whole milliseconds, and end that much early.
const TIMER: Duration = Duration::from_millis(2);

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// `false` for those that use up the limit beforehand.
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
    /// When the first request of the client arrives, `burst` others are made
    /// before it: however long the client took to start, it finds nothing left.
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

    /// All that has passed.
    pub(crate) fn seen(&self) -> Vec<Exchange> {
        self.seen.lock().unwrap().clone()
    }
}

/// After a refusal, the next request is its retry, since clients here do one thing
/// at a time: it may not come before the wait is over.
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

/// Whatever stretch of time one looks at, no more was admitted in it than the
/// bucket holds and what came back to it meanwhile.
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
