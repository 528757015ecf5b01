//! Tests of compared manners.

use super::*;

#[test]
fn paced_clients_are_refused_least_and_use_the_limit() {
    let report = compare_callers(&CallersScenario::default()).unwrap();
    let [backoff, retry_after, paced] = &report.manners[..] else { panic!("three manners") };
    assert!(paced.refused_share * 3.0 < retry_after.refused_share, "{report:?}");
    assert!(paced.refused * 20 < retry_after.refused.min(backoff.refused), "{report:?}");
    assert!(paced.goodput > 0.9 && paced.fairness > 0.9, "{report:?}");
}

#[test]
fn one_seed_has_one_result_and_mistakes_are_reported() {
    let short = CallersScenario { duration: Span::from_secs(3), ..CallersScenario::default() };
    let json = |it: &CallersScenario| serde_json::to_string(&compare_callers(it).unwrap()).unwrap();
    assert_eq!(json(&short), json(&short));
    for (wrong, error) in [
        (CallersScenario { clients: 0, ..short.clone() }, "1 to 1000 clients"),
        (CallersScenario { load: f64::NAN, ..short.clone() }, "more than 0"),
        (CallersScenario { load: 100.0, duration: Span::from_hours(10), ..short.clone() }, "500000 calls"),
        (CallersScenario { manners: Vec::new(), ..short.clone() }, "no manner"),
        (CallersScenario { limit: "fast".to_owned(), ..short }, "not a rate"),
    ] {
        let said = compare_callers(&wrong).unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }
}
