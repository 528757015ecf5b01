//! Holds the answers to requests that have to wait in the queue of a limit.
//!
//! A limit with a queue admits a request that starts after a wait. The protocol has no field for the
//! wait, so the answer is held until the request may start: the proxy forwards it then. An answer is
//! held no longer than the proxy waits for it (`grpc-timeout`, less a margin) and no longer than
//! [`RlsSettings::max_wait`](crate::RlsSettings::max_wait), and at most
//! [`RlsSettings::max_waiting`](crate::RlsSettings::max_waiting) answers are held at once. A request
//! that does not fit is refused, and its charge is refunded. If all places are taken, a more important request takes
//! that of a less important one.
//!
//! When the server stops, an answer whose request would start after the end of the drain becomes a
//! refusal, which is encoded in advance: Envoy lets a request pass that gets no answer.
//!
//! Invariant: dropping a held answer at any moment, for example because the proxy resets its stream,
//! gives the place in the queue back.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tollgate::{Decision, HoldEnd, Input, Limiter, NotHeld, Sleeper, Store};
use tollgate_http::{HoldTime, ShuttingDown, WaitingRoom};
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

use crate::service::RlsSettings;

/// The part of a `grpc-timeout` that is left for the way of the answer: one tenth, but not less than
/// [`MIN_MARGIN`].
const MARGIN_DIVISOR: u32 = 10;
const MIN_MARGIN: Duration = Duration::from_millis(5);

/// Completes when an answer may be sent. An error means that the request must not start: the place has been given
/// back.
pub(crate) type Hold = Pin<Box<dyn Future<Output = Result<(), NotStarted>> + Send>>;

/// The reason why a request must not start although its limits have admitted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    ShuttingDown,
    /// A more important request took its place.
    Displaced,
}

/// The answers that are held, and a counter, which publishes no other data.
pub(crate) struct HeldAnswers {
    max_wait: Duration,
    room: WaitingRoom,
    /// The same room with a sleep that ends when the server stops.
    closing_room: OnceLock<WaitingRoom>,
    refused: AtomicU64,
}

impl HeldAnswers {
    pub(crate) fn new(settings: &RlsSettings, sleeper: Sleeper) -> Self {
        let room = WaitingRoom::new(settings.max_waiting, move |wait| sleeper.sleep(wait));
        let closing_room = OnceLock::new();
        Self { max_wait: settings.max_wait, room, closing_room, refused: AtomicU64::new(0) }
    }

    /// The room in which answers are held.
    pub(crate) fn room(&self) -> &WaitingRoom {
        self.closing_room.get().unwrap_or(&self.room)
    }

    /// Sets a room with another sleep, once.
    pub(crate) fn hold_in(&self, room: WaitingRoom) {
        let _first = self.closing_room.set(room);
    }

    /// Returns a future that completes when the request may start, or `None` if it starts
    /// immediately or is refused. The caller reports a request that is displaced to the observer. If it cannot wait for as long as its limits say, this refunds it
    /// and makes the decision a refusal. `input` is the one that was decided, and `spent` the part of
    /// `timeout` that has passed.
    pub(crate) async fn hold<S: Store>(
        &self,
        limiter: &Limiter<S>,
        (input, decision): (Option<&(dyn Input + Sync)>, &mut Decision<'_>),
        timeout: CallTimeout<'_>,
        spent: Duration,
    ) -> Option<Hold> {
        let place = limiter.queue_place(decision)?;
        let mut max_wait = timeout.time().map_or(self.max_wait, |it| it.min(self.max_wait));
        max_wait = max_wait.saturating_sub(spent);
        let mut reason = NotHeld::TooLong;
        if place.wait_time() <= max_wait {
            if let Some(held) = self.room().enter(HoldTime::Exactly(place.wait_time()), decision.rank()) {
                return Some(Box::pin(async move {
                    let not_started = match held.wait().await {
                        Ok(HoldEnd::TimeOver) => None,
                        Ok(HoldEnd::Displaced) => Some(NotStarted::Displaced),
                        Err(ShuttingDown) => Some(NotStarted::ShuttingDown),
                    };
                    if let Some(reason) = not_started {
                        // Boxed, so that a held answer stays small.
                        let _deferred = Box::pin(place.leave()).await;
                        return Err(reason);
                    }
                    // A proxy does not report the end of a request, so it holds no slots.
                    place.start().forget();
                    Ok(())
                }));
            }
            (max_wait, reason) = (Duration::ZERO, NotHeld::NoPlace);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        limiter.refuse_wait(input.map(|it| it as &dyn Input), decision, max_wait, reason);
        // A refund that the store does not confirm is deferred.
        let _deferred = place.leave().await;
        None
    }

    pub(crate) fn write(&self, out: &mut String) {
        let mut to = Exposition::new(out);
        let waiting = u64::try_from(self.room.waiting()).unwrap_or(u64::MAX);
        to.one("tollgate_rls_waiting", Gauge, "Answers that are currently held for a queue.", waiting);
        let help = "Requests that had to wait in the queue of a limit, by result.";
        let mut family = to.family("tollgate_rls_waits_total", Counter, help);
        family.value(&[("result", "held")], self.room.held());
        family.value(&[("result", "refused")], self.refused.load(Ordering::Relaxed));
        family.value(&[("result", "displaced")], self.room.displaced());
    }
}

/// How long a caller waits for its answer. The header is read only for a request that has to wait.
#[derive(Clone, Copy)]
pub(crate) enum CallTimeout<'c> {
    /// As long as its `grpc-timeout`.
    Grpc(GrpcTimeout<'c>),
    /// This long.
    AtMost(Duration),
}

impl CallTimeout<'_> {
    /// The time for which an answer may be held; `None` if the caller did not limit it.
    fn time(self) -> Option<Duration> {
        match self {
            Self::Grpc(timeout) => {
                let timeout = timeout.time()?;
                Some(timeout.saturating_sub((timeout / MARGIN_DIVISOR).max(MIN_MARGIN)))
            }
            Self::AtMost(time) => Some(time),
        }
    }
}

/// The value of a `grpc-timeout`, if there is one. It is parsed only for a call that has to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrpcTimeout<'c>(pub(crate) Option<&'c [u8]>);

impl<'c> GrpcTimeout<'c> {
    /// Returns the timeout among these headers.
    pub(crate) fn of(headers: &'c HeaderMap) -> Self {
        Self(headers.get("grpc-timeout").map(HeaderValue::as_bytes))
    }

    fn time(self) -> Option<Duration> {
        parse_timeout(self.0?)
    }
}

/// Awaits a call, which waits for the store no longer than the `grpc-timeout` permits.
pub(crate) async fn waiting_for_store<S: Store, T>(
    limiter: &Limiter<S>,
    timeout: GrpcTimeout<'_>,
    call: impl Future<Output = T>,
) -> T {
    match store_time(timeout) {
        Some(time) => limiter.within(time, call).await,
        None => call.await,
    }
}

/// Returns the time for which a call waits for the store: three fifths of its `grpc-timeout`, so that the
/// outage rules answer before the caller gives up. `None` if the caller did not limit it.
fn store_time(timeout: GrpcTimeout<'_>) -> Option<Duration> {
    timeout.time().map(|timeout| timeout * 3 / 5)
}

/// Parses a `grpc-timeout`: at most eight digits and a unit. An invalid one is ignored.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
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
            assert_eq!(parse_timeout(value.as_bytes()), expected, "{value}");
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
        let (timeout, spent) = (CallTimeout::AtMost(Duration::from_secs(3_600)), Duration::ZERO);
        let long = HeldAnswers { max_wait: Duration::from_secs(3_600), ..held };
        let hold = pollster::block_on(long.hold(&limiter, (None, &mut decision), timeout, spent)).unwrap();
        assert!(size_of_val(&*hold) <= 1024, "{}", size_of_val(&*hold));
    }

    #[test]
    fn an_answer_is_not_held_for_the_whole_timeout_of_its_caller() {
        let timeout = |value: &'static str| {
            let headers =
                HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), HeaderValue::from_static(value))]);
            CallTimeout::Grpc(GrpcTimeout::of(&headers)).time().map(|it| it.as_millis())
        };
        assert_eq!(timeout("1S"), Some(900));
        assert_eq!(timeout("20m"), Some(15));
        assert_eq!(timeout("3m"), Some(0));
        assert_eq!(timeout("soon"), None);
        assert_eq!(CallTimeout::Grpc(GrpcTimeout::of(&HeaderMap::new())).time(), None);
    }
}
