//! Explanations agree with decisions: the tests parse every number and compare it with the outcome.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod rng;

use tollgate::{
    Amount, Bucket, Calendar, CalendarUnit, Concurrency, FixedWindow, Mode, Outcome, Overdraft, Owner, Queue,
    Quota, Rate, SlidingLog, SlidingParts, SlidingWindow, Span, Timestamp, Verdict, Window,
};
use tollgate_telemetry::LimitRecord;

use rng::Rng;

const SEED: u64 = 0x0005_0a5c_u64;

fn record(quota: &Quota, cost: u64, outcome: Outcome) -> LimitRecord {
    LimitRecord {
        name: "search".into(),
        window: None,
        key: "ann".into(),
        tag: 2,
        key_hash: 1,
        quota: quota.clone(),
        whole: None,
        granted_by: None,
        mode: Mode::Enforce,
        is_candidate: false,
        count_denied: false,
        degraded: false,
        cost,
        outcome,
    }
}

/// The unit of decimal numbers: millionths.
const ONE: i128 = 1_000_000;

/// Parses a decimal number into millionths.
#[track_caller]
fn millionths(text: &str) -> i128 {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    assert!(rest.len() <= 6, "{text}");
    whole.parse::<i128>().unwrap() * ONE + format!("{rest:0<6}").parse::<i128>().unwrap()
}

/// Parses a duration such as `2 min 5 s` into microseconds, with the unit to which it was rounded up.
#[track_caller]
fn span(text: &str) -> (u64, u64) {
    let words: Vec<_> = text.split(' ').collect();
    let size = |unit: &str| match unit {
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000_i128,
        other => panic!("{other} is no unit in {text}"),
    };
    let parts = words.chunks(2).map(|it| u64::try_from(millionths(it[0]) * size(it[1]) / ONE).unwrap());
    // The first unit determines the rounding: tenths of a second below a minute.
    let step = match words[1] {
        "ms" => 1_000,
        "s" => 100_000,
        "min" => 1_000_000,
        "h" => 60_000_000,
        _ => 3_600_000_000,
    };
    (parts.sum(), step)
}

/// Returns the text between two others.
#[track_caller]
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in `{text}`")).1;
    if after.is_empty() { rest } else { rest.split_once(after).map_or(rest, |it| it.0) }
}

/// Parses the amount left from the second line, in millionths, negative if overdrawn.
#[track_caller]
fn left(standing: &str) -> i128 {
    match standing.strip_prefix("overdrawn by ") {
        Some(rest) => -millionths(rest.split(' ').next().unwrap()),
        None => millionths(standing.split(' ').next().unwrap()),
    }
}

/// Compares the explanation with the outcome. `before` is the amount that was available.
#[track_caller]
fn agree(limit: &LimitRecord, before: u64, at: Timestamp) {
    let lines = limit.arithmetic(at);
    let explanation = format!("{lines:#?}\n{:?}", limit.outcome);
    let (slots, is_bucket) =
        (matches!(limit.quota, Quota::Concurrency(_)), matches!(limit.quota, Quota::Bucket(_)));
    let cost = if slots { limit.cost.min(1) } else { limit.cost };
    let left = left(&lines[1]);
    assert_eq!(left.max(0) / ONE, i128::from(before), "{explanation}");
    assert!(left >= 0 || is_bucket, "{explanation}");
    let (requested, answer) = lines[2].split_once(": ").unwrap();
    match limit.outcome.verdict {
        Verdict::Refused { retry_after } => {
            assert_eq!(millionths(requested.strip_suffix(" asked for").unwrap()), i128::from(cost) * ONE);
            if cost == 0 {
                let more = between(answer, "more than ", " counted already");
                assert_eq!(
                    (left, millionths(more)),
                    (0, i128::from(limit.outcome.limit) * ONE),
                    "{explanation}"
                );
                return;
            }
            let short = answer.strip_suffix(" short").unwrap();
            let at_least = short.strip_prefix("at least ");
            // For a window, the amount of the overdraft is unknown.
            assert_eq!(at_least.is_some(), !slots && !is_bucket && left == 0, "{explanation}");
            let short = millionths(at_least.unwrap_or(short));
            assert!(short > 0, "{explanation}");
            assert_eq!(left + short, i128::from(cost) * ONE, "{explanation}");
            let wait = match &limit.quota {
                Quota::Bucket(_) => between(&lines[3], "enough in ", ""),
                Quota::FixedWindow(_) => between(&lines[3], "closes in ", ", at"),
                Quota::Concurrency(_) => between(&lines[3], "free in ", " at the latest"),
                _ => between(&lines[3], " in ", ""),
            };
            let (wait, step) = span(wait);
            let exact = retry_after.as_micros();
            assert!(exact <= wait && wait - exact < step, "{wait} for {exact}: {explanation}");
            if let Quota::Bucket(bucket) = &limit.quota {
                // The missing amount returns within the stated wait, to its last digit. A millionth of
                // a token may take longer than a microsecond, and a microsecond may be worth several.
                let (unit, ticks) = (bucket.grains_per_unit(), bucket.grains_per_tick());
                let time = |tokens: i128| tokens * i128::from(unit) / i128::from(ticks) / ONE;
                let tick = i128::from(ticks / u32::try_from(unit).unwrap_or(u32::MAX)) * ONE + 1;
                let off = (time(short) - i128::from(wait)).abs();
                assert!(off <= i128::from(step) + time(1 + tick) + 1, "{off} us: {explanation}");
            }
        }
        Verdict::Never => {
            assert!(cost > limit.outcome.limit, "{explanation}");
            assert!(answer.contains(&format!("more than the {}", limit.outcome.limit)), "{explanation}");
            assert_eq!(lines[3], "waiting does not help");
        }
        Verdict::Admitted { units: 0, .. } => assert_eq!(cost, 0, "{explanation}"),
        Verdict::Admitted { units, .. } => {
            assert!(!answer.contains("short"), "{explanation}");
            let after = millionths(answer.split(' ').next().unwrap());
            assert_eq!(left - after, i128::from(units) * ONE, "{explanation}");
            assert!(left >= i128::from(cost) * ONE, "{explanation}");
        }
    }
    let clock = between(&lines[1], " at ", " UTC");
    let day = at.as_micros() / 100_000 % 864_000;
    assert_eq!(
        clock.split([':', '.']).map(|it| it.parse::<u64>().unwrap()).collect::<Vec<_>>(),
        [day / 36_000, day / 600 % 60, day / 10 % 60, day % 10]
    );
}

#[test]
fn explanations_agree_with_decisions_for_any_quota_state_and_cost() {
    let mut rng = Rng(SEED);
    let mut refused = [0_u64; 5];
    for _ in 0..2_000 {
        let quota = rng.quota();
        let mut state = quota.fresh();
        let mut now = Timestamp::from_micros(1_731_690_000_000_000 + rng.below(86_400_000_000));
        for step in 0..20_u128 {
            now = now + Span::from_micros(rng.below(quota.period().as_micros() / 8 + 2));
            let capacity = quota.capacity();
            let cost = match rng.below(8) {
                0 => 0,
                1 => capacity + 1 + rng.below(5),
                2..5 => 1,
                _ => 1 + rng.below(capacity),
            };
            if rng.below(40) == 0 {
                let charge =
                    tollgate::Adjustment::Charge { units: capacity, overdraft: Overdraft::OneCapacity };
                quota.adjust(&mut state, charge, now);
            }
            let (amount, cost) = match &quota {
                Quota::Concurrency(_) if cost == 0 => (Amount::Exactly(0), 0),
                Quota::Concurrency(_) => (Amount::Slot(Owner(step)), 1),
                _ => (Amount::Exactly(cost), cost),
            };
            let before = quota.describe(&state, Verdict::admitted(0), now).remaining;
            let outcome = quota.step(&mut state, amount, now);
            agree(&record(&quota, cost, outcome), before, now);
            let kind = ["token-bucket", "fixed-window", "sliding-window", "sliding-log", "concurrency"];
            let kind = kind.iter().position(|it| *it == quota.algorithm()).unwrap();
            refused[kind] += u64::from(!outcome.is_admitted());
        }
    }
    assert!(refused.iter().all(|&count| count > 500), "{refused:?} refusals; seed {SEED:#x}");
}

fn wait(millis: u64) -> Verdict {
    Verdict::Refused { retry_after: Span::from_millis(millis) }
}

fn at_noon() -> Timestamp {
    // 2024-11-15, 12:00:03.25
    Timestamp::from_micros(1_731_672_003_250_000)
}

#[track_caller]
fn check(
    quota: impl Into<Quota>,
    cost: u64,
    verdict: Verdict,
    remaining: u64,
    reset: Span,
    expected: &[&str],
) {
    let quota = quota.into();
    let outcome = Outcome { verdict, limit: quota.capacity(), remaining, reset_after: reset };
    assert_eq!(record(&quota, cost, outcome).arithmetic(at_noon()), expected);
}

#[test]
fn a_bucket_is_explained_in_tokens() {
    let ten = Bucket::new(Rate::per_minute(10)).unwrap();
    check(
        ten,
        1,
        wait(3_600),
        0,
        Span::from_millis(57_600),
        &[
            "10 tokens a minute, in a bucket of 10",
            "0.4 tokens at 12:00:03.2 UTC",
            "1 asked for: 0.6 short",
            "one comes back every 6 s: enough in 3.6 s",
        ],
    );
    check(
        ten,
        2,
        Verdict::admitted(2),
        5,
        Span::from_millis(27_600),
        &[
            "10 tokens a minute, in a bucket of 10",
            "7.4 tokens at 12:00:03.2 UTC",
            "2 asked for: 5.4 left after it",
            "full again in 27.6 s",
        ],
    );
    check(
        ten,
        11,
        Verdict::Never,
        10,
        Span::ZERO,
        &[
            "10 tokens a minute, in a bucket of 10",
            "10 tokens at 12:00:03.2 UTC",
            "11 asked for: more than the 10 it ever holds",
            "waiting does not help",
        ],
    );
    check(
        ten,
        1,
        wait(21_000),
        0,
        Span::from_secs(75),
        &[
            "10 tokens a minute, in a bucket of 10",
            "overdrawn by 2.5 tokens at 12:00:03.2 UTC",
            "1 asked for: 3.5 short",
            "one comes back every 6 s: enough in 21 s",
        ],
    );
    check(
        Bucket::new(Rate::per_minute(7)).unwrap(),
        1,
        wait(86),
        0,
        Span::from_micros(51_514_000),
        &[
            "7 tokens a minute, in a bucket of 7",
            "0.99 tokens at 12:00:03.2 UTC",
            "1 asked for: 0.01 short",
            "7 come back a minute: enough in 86 ms",
        ],
    );
    check(
        ten,
        0,
        Verdict::admitted(0),
        10,
        Span::ZERO,
        &[
            "10 tokens a minute, in a bucket of 10",
            "10 tokens at 12:00:03.2 UTC",
            "0 asked for: only looked at",
        ],
    );
}

#[test]
fn a_fixed_window_is_explained_by_its_end() {
    check(
        FixedWindow::epoch(Rate::per_minute(100)).unwrap(),
        5,
        wait(56_750),
        3,
        Span::from_millis(56_750),
        &[
            "100 in each minute",
            "3 of 100 left at 12:00:03.2 UTC",
            "5 asked for: 2 short",
            "the window closes in 56.8 s, at 12:01:00.0 UTC: then there are 100 again",
        ],
    );
    let month = Window::Calendar(Calendar::new(CalendarUnit::Month, "UTC").unwrap());
    let rest = Span::from_micros(1_733_011_200_000_000 - at_noon().as_micros());
    check(
        FixedWindow::new(1_000, month).unwrap(),
        1,
        Verdict::Refused { retry_after: rest },
        0,
        rest,
        &[
            "1000 in each month of the calendar in UTC",
            "0 of 1000 left at 12:00:03.2 UTC",
            "1 asked for: at least 1 short",
            "the window closes in 15 d 12 h, at 00:00:00.0 UTC on 2024-12-01: then there are 1000 again",
        ],
    );
    let anchored = FixedWindow::anchored(Rate::new(5, Span::from_secs(90))).unwrap();
    check(
        anchored,
        1,
        Verdict::admitted(1),
        4,
        Span::from_secs(90),
        &[
            "5 in each stretch of 90 s, from a key's first request on",
            "5 of 5 left at 12:00:03.2 UTC",
            "1 asked for: 4 left after it",
            "the window closes in 1 min 30 s, at 12:01:33.3 UTC",
        ],
    );
}

#[test]
fn the_explanation_of_a_tally_says_that_refusals_count() {
    let quota = Quota::from(FixedWindow::tally(10, Window::Epoch(Span::from_minutes(1))).unwrap());
    let rest = Span::from_millis(56_750);
    let outcome = Outcome { verdict: wait(56_750), limit: 10, remaining: 0, reset_after: rest };
    let explain =
        |cost| LimitRecord { count_denied: true, ..record(&quota, cost, outcome) }.arithmetic(at_noon());
    assert_eq!(explain(0)[2], "0 asked for: more than 10 counted already");
    assert_eq!(explain(5)[0], "10 in each minute, refusals included");
    assert!(explain(5)[1].ends_with(", after this refusal, which is counted in full"));
}

#[test]
fn sliding_windows_and_slots_have_their_own_wording() {
    let sliding = SlidingWindow::new(Rate::per_hour(100)).unwrap();
    check(
        sliding,
        1,
        wait(30_600),
        0,
        Span::from_secs(4_000),
        &[
            "100 in any hour, estimated from this one and the last, which fades",
            "0 of 100 left at 12:00:03.2 UTC",
            "1 asked for: at least 1 short",
            "enough has faded in 30.6 s",
            "this hour began at 12:00:00.0 UTC, 3.3 s ago; the one before counts for 99 % now",
        ],
    );
    check(
        SlidingParts::new(Rate::per_hour(100), 7).unwrap(),
        1,
        Verdict::admitted(1),
        99,
        Span::from_secs(4_000),
        &[
            "100 in any hour, counted in 7 parts at most",
            "100 of 100 left at 12:00:03.2 UTC",
            "1 asked for: 99 left after it",
            "all is back in 1 h 7 min",
            "what came by 11:00:03.2 UTC no longer counts",
        ],
    );
    check(
        SlidingLog::new(Rate::per_second(3)).unwrap(),
        2,
        wait(600),
        1,
        Span::from_millis(900),
        &[
            "3 in any second, each counted",
            "1 of 3 left at 12:00:03.2 UTC",
            "2 asked for: 1 short",
            "enough has left the window in 600 ms",
        ],
    );
    let slots = Concurrency::new(4, Span::from_secs(30)).unwrap();
    check(
        slots,
        1,
        wait(2_000),
        0,
        Span::from_secs(29),
        &[
            "4 at once, each for 30 s at most",
            "0 of 4 free at 12:00:03.2 UTC",
            "1 asked for: 1 short",
            "one is free in 2 s at the latest",
        ],
    );
    check(
        slots,
        1,
        Verdict::admitted(1),
        3,
        Span::from_secs(30),
        &[
            "4 at once, each for 30 s at most",
            "4 of 4 free at 12:00:03.2 UTC",
            "1 asked for: 3 free after it",
            "all are free in 30 s at the latest",
        ],
    );
}

#[test]
fn shadow_mode_candidates_and_outages_are_mentioned() {
    let ten = Quota::from(Bucket::new(Rate::per_minute(10)).unwrap());
    let verdict = Verdict::Refused { retry_after: Span::from_secs(6) };
    let outcome = Outcome { verdict, limit: 10, remaining: 0, reset_after: Span::from_secs(60) };
    let limit = record(&ten, 1, outcome);
    let last = |limit: LimitRecord| limit.arithmetic(at_noon()).pop().unwrap();
    assert_eq!(
        last(LimitRecord { mode: Mode::Shadow, ..limit.clone() }),
        "in shadow mode: it counts and does not refuse"
    );
    assert_eq!(
        last(LimitRecord { mode: Mode::Shadow, is_candidate: true, ..limit.clone() }),
        "a candidate: evaluated beside the live limit, it does not refuse"
    );
    assert_eq!(
        last(LimitRecord { degraded: true, ..limit.clone() }),
        "counted on this node alone, by its share, because the store does not answer"
    );
    let counted = LimitRecord { count_denied: true, ..limit.clone() };
    let lines = counted.arithmetic(at_noon());
    assert_eq!(
        lines[1..3],
        [
            "0 tokens at 12:00:03.2 UTC, after this refusal, which is charged too as far as something was left",
            "1 asked for: refused, and charged all the same"
        ]
    );
    let overdrawn = Outcome { reset_after: Span::from_secs(75), ..outcome };
    let lines = LimitRecord { outcome: overdrawn, ..counted }.arithmetic(at_noon());
    assert_eq!(
        lines[1..3],
        [
            "overdrawn by 2.5 tokens at 12:00:03.2 UTC, before and after this refusal",
            "1 asked for: refused; overdrawn as it is, it was charged nothing more"
        ]
    );
    let beside =
        Outcome { verdict: Verdict::admitted(0), remaining: 4, reset_after: Span::from_secs(36), ..outcome };
    let lines = record(&ten, 1, beside).arithmetic(at_noon());
    assert_eq!(lines[2], "1 asked for: there is room, and nothing was taken");
    assert_eq!(limit.promise(), "10 a minute, at most 10 at once");
}

#[test]
fn the_source_of_a_quota_is_stated() {
    let six = Quota::from(Bucket::new(Rate::per_minute(6)).unwrap());
    let outcome =
        Outcome { verdict: Verdict::admitted(1), limit: 6, remaining: 5, reset_after: Span::from_secs(10) };
    let limit = LimitRecord { granted_by: Some("plan pro".into()), ..record(&six, 1, outcome) };
    assert_eq!(limit.arithmetic(at_noon())[0], "6 tokens a minute by plan `pro`, in a bucket of 6");
    assert_eq!(limit.promise(), "6 a minute by plan `pro`, at most 6 at once");
    let window = Quota::from(FixedWindow::epoch(Rate::per_minute(6)).unwrap());
    let limit = LimitRecord { granted_by: Some("override".into()), ..record(&window, 1, outcome) };
    assert_eq!(limit.promise(), "6 in each minute by an override for this key");
    let limit = LimitRecord { granted_by: Some("call".into()), ..record(&six, 1, outcome) };
    assert_eq!(limit.promise(), "6 a minute, as the call said, at most 6 at once");
    assert_eq!(limit.arithmetic(at_noon())[0], "6 tokens a minute, as the call said, in a bucket of 6");
    let one = Quota::from(Bucket::new(Rate::per_minute(1)).unwrap());
    let share = LimitRecord { whole: Some(six), degraded: true, quota: one, ..limit };
    assert_eq!(
        share.promise(),
        "6 a minute, as the call said, at most 6 at once; in this outage this node grants its share: 1 a minute, at most 1 at once"
    );
}

#[test]
fn the_share_of_a_node_is_stated_with_the_quota_of_the_file() {
    let (ten, two) = (Bucket::new(Rate::per_minute(10)).unwrap(), Bucket::new(Rate::per_minute(2)).unwrap());
    let outcome =
        Outcome { verdict: Verdict::admitted(1), limit: 2, remaining: 1, reset_after: Span::from_secs(30) };
    let limit =
        LimitRecord { whole: Some(ten.into()), degraded: true, ..record(&Quota::from(two), 1, outcome) };
    assert_eq!(
        limit.promise(),
        "10 a minute, at most 10 at once in the file; in this outage this node grants its share: 2 a minute, at most 2 at once"
    );
    assert!(limit.arithmetic(at_noon())[0].starts_with("10 tokens a minute, in a bucket of 10 in the file;"));
}

#[test]
fn the_end_of_a_calendar_window_is_shown_in_its_time_zone() {
    let day = Window::Calendar(Calendar::new(CalendarUnit::Day, "Asia/Kolkata").unwrap());
    // Midnight in India.
    let rest = Span::from_micros(1_731_695_400_000_000 - at_noon().as_micros());
    check(
        FixedWindow::new(1, day).unwrap(),
        1,
        Verdict::Refused { retry_after: rest },
        0,
        rest,
        &[
            "1 in each day of the calendar in Asia/Kolkata",
            "0 of 1 left at 12:00:03.2 UTC",
            "1 asked for: at least 1 short",
            "the window closes in 6 h 30 min, at 18:30:00.0 UTC (2024-11-16 00:00:00 in Asia/Kolkata): \
             then there is 1 again",
        ],
    );
}

#[test]
fn the_missing_amount_agrees_with_the_wait() {
    // One token a day, of which twelve minutes' worth is missing.
    check(
        Bucket::new(Rate::new(1, Span::from_days(1))).unwrap(),
        1,
        wait(723_000),
        0,
        Span::from_secs(723),
        &[
            "1 token a day, in a bucket of 1",
            "0.99163 tokens at 12:00:03.2 UTC",
            "1 asked for: 0.00837 short",
            "one comes back every 1 d: enough in 12 min 3 s",
        ],
    );
}

#[test]
fn a_queue_is_explained_by_its_places() {
    let queue = Queue::new(50).with_wait(Span::from_secs(2)).with_free(1);
    let quota: Quota = Bucket::new(Rate::per_second(10)).unwrap().with_queue(queue).unwrap().into();
    let (mut state, at) = (quota.fresh(), Timestamp::from_secs(1_700_000_000));
    let mut explained = || {
        let outcome = quota.step(&mut state, Amount::Exactly(1), at);
        record(&quota, 1, outcome).arithmetic(at)
    };
    let first = explained();
    assert_eq!(first[0], "10 a second, and 50 that wait, for 2 s at most, of which 1 starts immediately");
    assert_eq!(first[1], "22 of 22 places left at 22:13:20.0 UTC");
    assert_eq!(first[2..], ["1 asked for: 21 left after it", "the queue is empty in 100 ms"]);
    explained();
    assert_eq!(explained()[3], "waits 100 ms in the queue (place 2 of 50)");
    let last = std::iter::repeat_with(explained).find(|lines| lines[2].ends_with("short")).unwrap();
    assert_eq!(last[1..3], ["0 of 22 places left at 22:13:20.0 UTC", "1 asked for: at least 1 short"]);
    assert_eq!(last[3], "one leaves the queue every 100 ms: enough in 100 ms");
}
