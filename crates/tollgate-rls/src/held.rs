//! Holds the answers to requests that have to wait in the queue of a limit.
//!
//! A limit with a queue admits a request that starts after a wait. The protocol has no field for the
//! wait, so the answer is held until the request may start: the proxy forwards it then. An answer is
//! held no longer than the proxy waits for it (`grpc-timeout`, less a margin) and no longer than
//! [`RlsSettings::max_wait`](crate::RlsSettings::max_wait), and at most
//! [`RlsSettings::max_waiting`](crate::RlsSettings::max_waiting) answers are held at once. A request
//! that does not fit is refused, and its charge is refunded.
//!
//! Invariant: dropping a held answer at any moment, for example because the proxy resets its stream,
//! gives the place in the queue back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use tollgate::{Decision, Limiter, SleepFuture, Sleeper, Store};
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

use crate::service::RlsSettings;

/// The part of a `grpc-timeout` that is left for the way of the answer: one tenth, but not less than
/// [`MIN_MARGIN`].
const MARGIN_DIVISOR: u32 = 10;
const MIN_MARGIN: Duration = Duration::from_millis(5);

/// The answers that are held, and counters. They publish no other data, so relaxed ordering is
/// sufficient.
pub(crate) struct HeldAnswers {
    max_wait: Duration,
    places: Arc<Places>,
    refused: AtomicU64,
    sleeper: Sleeper,
}

struct Places {
    max: usize,
    taken: AtomicUsize,
    held: AtomicU64,
}

/// The place of one held answer. Dropping it frees the place.
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Places {
    fn enter(self: &Arc<Self>) -> Option<Place> {
        let one_more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        self.held.fetch_add(1, Ordering::Relaxed);
        Some(Place(Arc::clone(self)))
    }
}

impl HeldAnswers {
    pub(crate) fn new(settings: &RlsSettings, sleeper: Sleeper) -> Self {
        let (taken, held) = (AtomicUsize::new(0), AtomicU64::new(0));
        let places = Arc::new(Places { max: settings.max_waiting, taken, held });
        Self { max_wait: settings.max_wait, places, refused: AtomicU64::new(0), sleeper }
    }

    /// Returns a future that completes when the request may start, or `None` if it starts
    /// immediately or is refused. If it cannot wait for as long as its limits say, this refunds it
    /// and makes the decision a refusal. `spent`: the part of `patience` that has passed.
    pub(crate) async fn hold<S: Store>(
        &self,
        limiter: &Limiter<S>,
        decision: &mut Decision<'_>,
        patience: Patience<'_>,
        spent: Duration,
    ) -> Option<SleepFuture> {
        let place = limiter.queue_place(decision)?;
        let mut max_wait = patience.time().map_or(self.max_wait, |it| it.min(self.max_wait));
        max_wait = max_wait.saturating_sub(spent);
        if place.wait_time() <= max_wait {
            if let Some(held) = self.places.enter() {
                let sleeping = self.sleeper.sleep(place.wait_time());
                return Some(Box::pin(async move {
                    sleeping.await;
                    // A proxy does not report the end of a request, so it holds no slots.
                    place.start().forget();
                    drop(held);
                }));
            }
            max_wait = Duration::ZERO;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        decision.refuse_wait(max_wait);
        // A refund that the store does not confirm is deferred.
        let _deferred = place.leave().await;
        None
    }

    pub(crate) fn write(&self, out: &mut String) {
        let mut to = Exposition::new(out);
        let places = &self.places;
        let waiting = u64::try_from(places.taken.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        to.one("tollgate_rls_waiting", Gauge, "Answers that are currently held for a queue.", waiting);
        let help = "Requests that had to wait in the queue of a limit, by result.";
        let mut family = to.family("tollgate_rls_waits_total", Counter, help);
        family.value(&[("result", "held")], places.held.load(Ordering::Relaxed));
        family.value(&[("result", "refused")], self.refused.load(Ordering::Relaxed));
    }
}

/// How long a caller waits for its answer. The header is read only for a request that has to wait.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'c> {
    /// As long as the `grpc-timeout` among these headers.
    Grpc(&'c HeaderMap),
    /// This long.
    AtMost(Duration),
}

impl Patience<'_> {
    /// The time for which an answer may be held; `None` if the caller did not limit it.
    fn time(self) -> Option<Duration> {
        match self {
            Self::Grpc(headers) => {
                let timeout = grpc_timeout(headers.get("grpc-timeout")?.as_bytes())?;
                Some(timeout.saturating_sub((timeout / MARGIN_DIVISOR).max(MIN_MARGIN)))
            }
            Self::AtMost(time) => Some(time),
        }
    }
}

/// Parses a `grpc-timeout`: at most eight digits and a unit. An invalid one is ignored.
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tollgate::Call;

    use super::*;

    #[test]
    fn a_grpc_timeout_is_a_number_and_a_unit() {
        for (value, expected) in [
            ("20m", Some(Duration::from_millis(20))),
            ("1S", Some(Duration::from_secs(1))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("0m", Some(Duration::ZERO)),
            ("123456789m", None),
            ("m", None),
            ("", None),
            ("1", None),
            ("-1m", None),
            ("+1m", None),
            ("1 m", None),
            ("1.5S", None),
            ("1s", None),
        ] {
            assert_eq!(grpc_timeout(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_held_answer_takes_at_most_a_kilobyte_besides_its_call_and_its_bytes() {
        let policy = "limits: [{by: user, algorithm: leaky-queue, rate: 1/hour, queue: {length: 1}}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let call = Call::new("GET", "/").user("ann");
        let held = HeldAnswers::new(&RlsSettings::default(), Sleeper::default());
        assert!(limiter.check(&call).wait().is_zero());
        let mut decision = limiter.check(&call);
        let (patience, spent) = (Patience::AtMost(Duration::from_secs(3_600)), Duration::ZERO);
        let long = HeldAnswers { max_wait: Duration::from_secs(3_600), ..held };
        let hold = pollster::block_on(long.hold(&limiter, &mut decision, patience, spent)).unwrap();
        assert!(size_of_val(&*hold) <= 1024, "{}", size_of_val(&*hold));
    }

    #[test]
    fn an_answer_is_not_held_for_the_whole_timeout_of_its_caller() {
        let patience = |value: &'static str| {
            let headers =
                HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), HeaderValue::from_static(value))]);
            Patience::Grpc(&headers).time().map(|it| it.as_millis())
        };
        assert_eq!(patience("1S"), Some(900));
        assert_eq!(patience("20m"), Some(15));
        assert_eq!(patience("3m"), Some(0));
        assert_eq!(patience("soon"), None);
        assert_eq!(Patience::Grpc(&HeaderMap::new()).time(), None);
    }
}
