//! Dates in headers follow the wall clock, also after the clock was set.

use http::HeaderMap;
use tollgate::policy::HeaderSettings;
use tollgate::{Call, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_http::write_headers;

/// Noon UTC.
const NOON: Timestamp = Timestamp::from_secs(1_800_014_400);

/// Returns the value of `X-RateLimit-Reset`, and whether the request was allowed.
fn reset(limiter: &Limiter<MemoryStore<ManualClock>>) -> (u64, bool) {
    let decision = limiter.check(&Call::new("GET", "/").user("ann"));
    let mut headers = HeaderMap::new();
    write_headers(&mut headers, &decision, limiter.id_of(&decision), &HeaderSettings::default(), None);
    (
        headers["x-ratelimit-reset"].to_str().expect("a valid value").parse().expect("a valid value"),
        decision.is_allowed(),
    )
}

fn limiter(amount: &str) -> Limiter<MemoryStore<ManualClock>> {
    let policy = Policy::parse(&format!("limits: [{{name: l, by: user, {amount}}}]")).expect("a valid value");
    Limiter::with_store(policy, MemoryStore::with_seed(100, ManualClock::at(NOON), 7))
}

#[test]
fn a_reset_is_in_the_future_after_a_step_of_thirty_hours() {
    for amount in [
        "algorithm: fixed-window, align: calendar, rate: 1/day",
        "algorithm: fixed-window, rate: 1/day",
        "algorithm: fixed-window, align: first-request, rate: 1/day",
        "algorithm: sliding-log, rate: 1/day",
        "bucket: 1/day",
    ] {
        let limiter = limiter(amount);
        assert!(reset(&limiter).1 && !reset(&limiter).1, "{amount}");
        for (wall, later) in [(NOON + Span::from_hours(30), true), (NOON.before(Span::from_hours(6)), false)]
        {
            limiter.clock().set_wall(wall);
            let (at, allowed) = reset(&limiter);
            let now = wall.as_secs_ceil();
            assert!(at > now && at <= now + 48 * 3_600, "{amount}: {at} at {now}");
            let follows = limiter.policy().limits()[0].rules()[0].quota.follows_wall();
            assert_eq!(allowed, follows && later, "{amount}: a new day has begun, or none has");
        }
    }
}

#[test]
fn the_end_of_a_calendar_day_is_midnight_on_the_wall() {
    let limiter = limiter("algorithm: fixed-window, align: calendar, rate: 9/day");
    let midnight = (NOON + Span::from_hours(12)).as_secs_ceil();
    assert_eq!(reset(&limiter).0, midnight);
    // Ahead by 236 ppm of a day, a drift that was observed on a real process.
    limiter.clock().set_wall(NOON + Span::from_micros(20_390_400));
    assert_eq!(reset(&limiter).0, midnight);
    limiter.clock().set_wall(NOON + Span::from_hours(30));
    assert_eq!(reset(&limiter).0, midnight + 86_400);
}
