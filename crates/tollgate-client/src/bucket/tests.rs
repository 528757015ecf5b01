//! Tests of learned buckets.
use super::*;

const START: Timestamp = Timestamp::from_secs(1_000);

fn at(millis: u64) -> Timestamp {
    START + Span::from_millis(millis)
}

fn seen(limit: u64, remaining: u64, reset_millis: u64) -> Observation {
    Observation {
        limit: Some(limit),
        remaining: Some(remaining),
        reset_at: Some(at(reset_millis)),
        ..Observation::default()
    }
}

#[test]
fn a_response_lowers_the_model_to_what_the_server_counted() {
    let mut bucket = Bucket::new(BucketKind::Requests, START);
    let first = bucket.take(START, None);
    bucket.report(&first, &seen(100, 99, 60_000), at(10));
    let one = bucket.take(at(20), None);
    let _two = bucket.take(at(20), None);
    assert_eq!(bucket.level(), Some(97.0));
    // Another client has used 50 units.
    bucket.report(&one, &seen(100, 48, 60_000), at(30));
    assert_eq!(bucket.level(), Some(48.0));
}

#[test]
fn an_empty_window_waits_for_its_reset_and_then_sends_one_call() {
    let mut bucket = Bucket::new(BucketKind::Requests, START);
    let ticket = bucket.take(START, None);
    bucket.report(&ticket, &Observation { shape: Some(Shape::Window), ..seen(5, 0, 2_000) }, at(10));
    assert_eq!(bucket.ready(at(20), None), Ready::At(at(2_000)));
    assert_eq!(bucket.ready(at(2_000), None), Ready::Now);
    let probe = bucket.take(at(2_000), None);
    assert!(matches!(bucket.ready(at(2_001), None), Ready::AfterAnswer(_)));
    bucket.report(&probe, &Observation { shape: Some(Shape::Window), ..seen(5, 4, 4_000) }, at(2_010));
    assert!(!matches!(bucket.ready(at(2_010), None), Ready::AfterAnswer(_)));
}

#[test]
fn an_empty_bucket_without_a_reset_is_tried_again_after_a_second() {
    let mut bucket = Bucket::new(BucketKind::Requests, START);
    let ticket = bucket.take(START, None);
    bucket.report(&ticket, &Observation { reset_at: None, ..seen(5, 0, 0) }, at(10));
    assert_eq!(bucket.ready(at(20), None), Ready::At(at(1_010)));
    assert_eq!(bucket.ready(at(1_010), None), Ready::Now);
    let _ticket = bucket.take(at(1_010), None);
    assert!(matches!(bucket.ready(at(1_020), None), Ready::At(_) | Ready::AfterAnswer(_)));
}

#[test]
fn a_refusal_stops_the_bucket_and_a_huge_one_for_an_hour() {
    let mut bucket = Bucket::new(BucketKind::Requests, START);
    let (one, two) = (bucket.take(START, None), bucket.take(START, None));
    bucket.refuse(&one, at(5_000), (None, None), at(10));
    assert_eq!(bucket.ready(at(20), None), Ready::At(at(5_000)));
    bucket.refuse(&two, Timestamp::from_micros(u64::MAX), (None, None), at(30));
    assert_eq!(bucket.ready(at(40), None), Ready::At(at(30) + MAX_BLOCK));
    assert!(matches!(bucket.ready(at(40) + MAX_BLOCK, None), Ready::Now | Ready::At(_)));
}

#[test]
fn a_reset_that_moves_means_that_the_bucket_refills() {
    let mut bucket = Bucket::new(BucketKind::Requests, START);
    for used in 1..=10 {
        let ticket = bucket.take(at(used), None);
        // Ten units a minute: each used unit moves the time at which the bucket is full by six seconds.
        bucket.report(&ticket, &seen(10, 10 - used, used * 6_000), at(used));
    }
    assert_eq!(bucket.shape(), Some(Shape::Refill));
    let rate = bucket.rate_per_second().unwrap();
    assert!((0.1..=0.167).contains(&rate), "{rate}");
}

#[test]
fn tokens_are_paced_by_the_cost_of_calls() {
    let mut bucket = Bucket::new(BucketKind::Tokens, START);
    let window = Some(Span::from_secs(60));
    let report =
        |remaining| Observation { shape: Some(Shape::Refill), window, ..seen(6_000, remaining, 60_000) };
    let ticket = bucket.take(START, Some(500.0));
    bucket.report(&ticket, &report(5_500), START);
    for _ in 0..10 {
        assert_eq!(bucket.ready(START, Some(500.0)), Ready::Now);
        bucket.take(START, Some(500.0));
    }
    let Ready::At(time) = bucket.ready(START, Some(500.0)) else { panic!("5,500 of 5,500 tokens are used") };
    assert!(time <= at(100), "{time:?}");
}
