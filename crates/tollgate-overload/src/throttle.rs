//! Throttling by success rate: refuses a share of requests to a service that rejects most of them.
//!
//! A service that rejects requests still spends time on each of them. A caller that keeps the numbers
//! of its requests and of those that were accepted refuses, on its own, with the probability
//! `p = max(0, (requests − K × accepts) / (requests + 1))` (Google, Site Reliability Engineering,
//! chapter 21). With K = 2, about half of the requests that arrive at an overloaded service are
//! accepted, so that it is noticed soon when the service recovers.
//!
//! Refused requests are requests, too. A service that has rejected everything for a whole window would get one request
//! in that window, and after its recovery the share of admitted requests would double in each window only. Therefore one
//! request in ten is always sent, and a service that accepts requests again is judged by the newest parts of the window:
//! the share is the smaller of both. Under a steady overload they are equal.
//!
//! A request counts when its end is known. One that is still without an answer after one to two tenths of
//! the window counts, too: a service that stops answering would otherwise not be throttled until its first
//! requests time out. Requests that were sent a moment ago do not count. If they did, a burst to a healthy
//! service would be refused until its first answers arrive.

use std::time::Duration;

/// The number of parts in which the window slides.
const PARTS: usize = 10;

/// The number of requests in the window below which no request is refused: a single failure after a
/// quiet time says little.
const MIN_REQUESTS: f64 = 10.0;

/// The largest share of requests that are refused: the others show whether the service has recovered.
const MAX_SHARE: f64 = 0.9;

/// The number of newest parts by which a recovery is noticed.
const RECENT_PARTS: u64 = 2;

/// The settings of a [`Throttle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleSettings {
    /// K in percent: the number of requests per 100 accepted ones up to which none is refused, more than
    /// 100.
    pub k_percent: u32,
    /// The time over which requests are counted.
    pub window: Duration,
}

impl Default for ThrottleSettings {
    fn default() -> Self {
        Self { k_percent: 200, window: Duration::from_secs(30) }
    }
}

/// Counts the requests to a service and those that it accepted, and refuses a share of them.
///
/// ```
/// use std::time::Duration;
/// use tollgate_overload::throttle::{AttemptEnd, Throttle, ThrottleSettings};
///
/// let mut throttle = Throttle::new(ThrottleSettings::default());
/// let now = Duration::from_secs(1);
/// for _ in 0..99 {
///     if let Some(attempt) = throttle.admit(now, 1.0, 0.999) {
///         throttle.end(attempt, AttemptEnd::Rejected, now);
///     }
/// }
/// assert_eq!(throttle.refusal_share(now, 1.0), 0.9);
/// assert!(throttle.admit(now, 1.0, 0.5).is_none());
/// assert!(throttle.admit(now + Duration::from_secs(60), 1.0, 0.5).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Throttle {
    settings: ThrottleSettings,
    parts: [Part; PARTS],
    /// The number of the current part since the start of the clock.
    current: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// The requests that ended or were refused in this part.
    requests: u32,
    accepts: u32,
    /// The requests that were sent in this part and have no answer yet.
    unanswered: u32,
}

/// A request that was admitted and has not ended.
#[derive(Clone, Copy, Debug)]
#[must_use = "the request counts as unanswered until `Throttle::end`"]
pub struct Attempt {
    /// The number of the part in which it was sent; `None` if its wait for an answer does not count.
    part: Option<u64>,
}

/// The end of a request, as a [`Throttle`] counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The service accepted the request.
    Accepted,
    /// The service rejected the request, or did not answer in time.
    Rejected,
    /// The request says nothing about the service: its caller left, or failed to send it. It is not counted.
    Withdrawn,
}

/// The numbers of a [`Throttle`] in its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleReading {
    /// The requests, sent or refused.
    pub requests: f64,
    /// The requests that the service accepted.
    pub accepts: f64,
    /// The share of requests that are refused, 0 to 1.
    pub share: f64,
}

impl Throttle {
    /// Creates a throttle that has counted nothing.
    pub fn new(settings: ThrottleSettings) -> Self {
        Self { settings, parts: [Part::default(); PARTS], current: 0 }
    }

    /// Returns an attempt if a request may be sent. A request that may not is counted. `leniency` multiplies
    /// K, for requests that are more important than others. `random` is between 0 and 1, 1 excluded.
    pub fn admit(&mut self, now: Duration, leniency: f64, random: f64) -> Option<Attempt> {
        let share = self.refusal_share(now, leniency);
        self.admit_at_share(now, share, random)
    }

    /// Returns an attempt as [`admit`](Self::admit) does, with another share of refused requests than the counted one.
    pub fn admit_at_share(&mut self, now: Duration, share: f64, random: f64) -> Option<Attempt> {
        self.slide(now);
        let part = self.part();
        if random < share {
            part.requests = part.requests.saturating_add(1);
            return None;
        }
        part.unanswered = part.unanswered.saturating_add(1);
        Some(Attempt { part: Some(self.current) })
    }

    /// Counts a request only when it ends, however long it takes: its caller is still sending it.
    pub fn count_late(&mut self, attempt: &mut Attempt, now: Duration) {
        self.slide(now);
        let Some(part) = attempt.part.take() else { return };
        if self.current.saturating_sub(part) < PARTS as u64 {
            let sent = &mut self.parts[place(part)];
            sent.unanswered = sent.unanswered.saturating_sub(1);
        }
    }

    /// Counts the end of a request.
    pub fn end(&mut self, mut attempt: Attempt, end: AttemptEnd, now: Duration) {
        self.count_late(&mut attempt, now);
        if end == AttemptEnd::Withdrawn {
            return;
        }
        let part = self.part();
        part.requests = part.requests.saturating_add(1);
        if end == AttemptEnd::Accepted {
            part.accepts = part.accepts.saturating_add(1);
        }
    }

    /// Returns the share of requests that are refused now, 0 to 1.
    pub fn refusal_share(&mut self, now: Duration, leniency: f64) -> f64 {
        self.read(now, leniency).share
    }

    /// Returns the numbers of the window, and the share of requests that are refused now.
    pub fn read(&mut self, now: Duration, leniency: f64) -> ThrottleReading {
        self.slide(now);
        let (requests, accepts) = self.count(PARTS as u64);
        let (recent_requests, recent_accepts) = self.count(RECENT_PARTS);
        let k = f64::from(self.settings.k_percent) / 100.0 * leniency;
        let mut share = share_of(requests, k * accepts);
        if recent_requests >= MIN_REQUESTS {
            share = share.min(share_of(recent_requests, k * recent_accepts));
        }
        ThrottleReading { requests, accepts, share: if requests < MIN_REQUESTS { 0.0 } else { share } }
    }

    /// Returns the requests and the accepted ones of this many newest parts.
    fn count(&self, parts: u64) -> (f64, f64) {
        let (mut requests, mut accepts) = (0.0, 0.0);
        for back in 0..parts.min(self.current + 1) {
            let part = &self.parts[place(self.current - back)];
            requests += f64::from(part.requests);
            accepts += f64::from(part.accepts);
            // Requests of the current part and the one before have not had the time for an answer.
            if back > 1 {
                requests += f64::from(part.unanswered);
            }
        }
        (requests, accepts)
    }

    fn part(&mut self) -> &mut Part {
        &mut self.parts[place(self.current)]
    }

    /// Drops the parts that are older than the window.
    fn slide(&mut self, now: Duration) {
        let length = (self.settings.window / 10).max(Duration::from_millis(1));
        let now = u64::try_from(now.as_micros() / length.as_micros()).unwrap_or(u64::MAX);
        let steps = now.saturating_sub(self.current).min(PARTS as u64);
        self.current = self.current.max(now);
        for back in 0..steps {
            self.parts[place(self.current - back)] = Part::default();
        }
    }
}

/// Returns the share of requests that are refused. `admissible` is the number of requests for the accepted ones.
fn share_of(requests: f64, admissible: f64) -> f64 {
    ((requests - admissible) / (requests + 1.0)).clamp(0.0, MAX_SHARE)
}

/// Returns the place of a part in the ring.
fn place(part: u64) -> usize {
    usize::try_from(part % PARTS as u64).unwrap_or_default()
}

/// Returns the leniency of a class: K grows by half for each class that is less important, so that these
/// are throttled first.
pub fn class_leniency(rank: u8, classes: usize) -> f64 {
    let below = classes.saturating_sub(1).saturating_sub(usize::from(rank));
    1.0 + 0.5 * f64::from(u32::try_from(below).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends a request, if it is admitted, and ends it at once. Returns whether it was sent.
    fn send(throttle: &mut Throttle, now: Duration, random: f64, end: AttemptEnd) -> bool {
        let attempt = throttle.admit(now, 1.0, random);
        attempt.inspect(|attempt| throttle.end(*attempt, end, now)).is_some()
    }

    #[test]
    fn the_share_follows_the_formula() {
        for (accepts, rejects) in [(0, 10), (10, 0), (10, 10), (10, 30), (99, 301), (1, 8), (0, 9)] {
            let mut throttle = Throttle::new(ThrottleSettings::default());
            for (count, end) in [(accepts, AttemptEnd::Accepted), (rejects, AttemptEnd::Rejected)] {
                // A random number of almost one: each request is sent.
                (0..count).for_each(|_| assert!(send(&mut throttle, SECOND, 0.99999, end)));
            }
            let (requests, accepts) = (f64::from(accepts + rejects), f64::from(accepts));
            let exact = ((requests - 2.0 * accepts) / (requests + 1.0)).clamp(0.0, MAX_SHARE);
            let expected = if requests < MIN_REQUESTS { 0.0 } else { exact };
            let found = throttle.refusal_share(SECOND, 1.0);
            assert!((found - expected).abs() < 1e-9, "{accepts} of {requests}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_refused_request_counts_as_a_request() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        (0..10).for_each(|_| assert!(send(&mut throttle, SECOND, 0.0, AttemptEnd::Rejected)));
        (0..30).for_each(|_| assert!(!send(&mut throttle, SECOND, 0.0, AttemptEnd::Accepted)));
        let reading = throttle.read(SECOND, 1.0);
        assert!((reading.requests - 40.0).abs() < 0.1 && reading.accepts < 0.1, "{reading:?}");
    }

    #[test]
    fn a_burst_to_a_healthy_service_is_not_refused_before_its_first_answers() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        let sent: Vec<_> = (0..1_000).filter_map(|_| throttle.admit(SECOND, 1.0, 0.0)).collect();
        assert_eq!(sent.len(), 1_000);
        for attempt in sent {
            throttle.end(attempt, AttemptEnd::Accepted, SECOND * 3);
        }
        assert!((throttle.read(SECOND * 20, 1.0).accepts - 1_000.0).abs() < 0.1);
        assert!(throttle.refusal_share(SECOND * 20, 1.0) <= 0.0);
    }

    #[test]
    fn a_service_that_stops_answering_is_throttled_before_its_first_timeout() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        let sent: Vec<_> = (0..100).filter_map(|_| throttle.admit(SECOND, 1.0, 0.0)).collect();
        assert!(throttle.refusal_share(SECOND * 5, 1.0) <= 0.0);
        assert!(throttle.refusal_share(SECOND * 6, 1.0) > 0.89, "after two tenths of the window");
        // It answers after all.
        for attempt in sent {
            throttle.end(attempt, AttemptEnd::Accepted, SECOND * 7);
        }
        assert!(throttle.refusal_share(SECOND * 7, 1.0) <= 0.0);
    }

    #[test]
    fn requests_whose_callers_leave_do_not_throttle_others() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        for second in 1..20 {
            for _ in 0..1_000 {
                assert!(send(&mut throttle, SECOND * second, 0.0, AttemptEnd::Withdrawn));
            }
        }
        let late = throttle.admit(SECOND * 20, 1.0, 0.0).unwrap();
        // It leaves after its part has been dropped.
        throttle.end(late, AttemptEnd::Withdrawn, SECOND * 80);
        for _ in 0..1_000 {
            let mut upload = throttle.admit(SECOND * 60, 1.0, 0.0).unwrap();
            throttle.count_late(&mut upload, SECOND * 60);
        }
        assert!(throttle.read(SECOND * 80, 1.0).requests < 0.1);
    }

    #[test]
    fn counts_older_than_the_window_are_forgotten() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        for _ in 0..100 {
            send(&mut throttle, SECOND, 0.0, AttemptEnd::Rejected);
        }
        assert!(throttle.refusal_share(SECOND * 29, 1.0) > 0.89);
        assert!(throttle.refusal_share(SECOND * 34, 1.0) <= 0.0);
        // A clock that steps back forgets nothing and counts on.
        assert!(send(&mut throttle, SECOND, 0.0, AttemptEnd::Accepted));
    }

    /// Returns the share of 1,000 requests in this second that were sent to a service that accepts this many.
    fn second(throttle: &mut Throttle, random: &mut u64, at: u32, capacity: u32) -> f64 {
        let mut sent = 0;
        for request in 0..1_000 {
            let now = SECOND * at + Duration::from_millis(request);
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chance = f64::from(u32::try_from(*random >> 32).unwrap()) / 2_f64.powi(32);
            let end = if sent < capacity { AttemptEnd::Accepted } else { AttemptEnd::Rejected };
            sent += u32::from(send(throttle, now, chance, end));
        }
        f64::from(sent) / 1_000.0
    }

    #[test]
    fn a_service_that_has_recovered_gets_all_requests_within_fifteen_seconds() {
        let (mut throttle, mut random) = (Throttle::new(ThrottleSettings::default()), 7);
        let down: Vec<_> = (1..61).map(|at| second(&mut throttle, &mut random, at, 0)).collect();
        assert!(down[5..].iter().all(|sent| (0.05..0.15).contains(sent)), "one in ten is sent: {down:?}");
        let back: Vec<_> = (61..100).map(|at| second(&mut throttle, &mut random, at, 1_000)).collect();
        let recovered = back.iter().position(|sent| *sent > 0.98);
        assert!(recovered.is_some_and(|after| after <= 15), "{back:?}");
        assert!(back[16..].iter().all(|sent| *sent > 0.98), "it stays so: {back:?}");
    }

    #[test]
    fn an_overloaded_service_gets_about_twice_its_capacity() {
        let (mut throttle, mut random) = (Throttle::new(ThrottleSettings::default()), 7);
        let sent: Vec<_> = (1..121).map(|at| second(&mut throttle, &mut random, at, 200)).collect();
        let mean = sent[30..].iter().sum::<f64>() / 90.0;
        assert!((0.36..0.46).contains(&mean), "{mean}");
    }

    #[test]
    fn important_classes_are_throttled_last() {
        let mut throttle = Throttle::new(ThrottleSettings::default());
        for request in 0..1_000 {
            let end = if request % 3 == 0 { AttemptEnd::Accepted } else { AttemptEnd::Rejected };
            send(&mut throttle, SECOND, 0.99999, end);
        }
        let [critical, normal, bulk] =
            [0, 1, 2].map(|rank| throttle.refusal_share(SECOND, class_leniency(rank, 3)));
        assert!(critical <= 0.0 && normal < 0.01 && bulk > 0.3, "{critical} {normal} {bulk}");
    }
}
