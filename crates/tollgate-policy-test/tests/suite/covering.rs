//! Coverage lists the points that no test reached.

use crate::{run, steps};

const POLICY: &str = "
plans: {default: free}
limits:
  - name: search
    by: api_key
    bucket: 2/day
    plans: {free: 1/day, pro: unlimited, gone: blocked}
    overrides: {k-9: 5/day, k-0: unlimited}
  - {name: posts, endpoint: /posts, by: ip, bucket: 1/day}
  - {name: quiet, by: ip, bucket: 3/day, mode: shadow}
  - {name: off, by: ip, bucket: 1/day, mode: off}
";

/// Returns the limits as `name asked refused`, and the covered plans and overrides.
fn covered(written: &str) -> (Vec<String>, Vec<String>, u8) {
    let (verdicts, coverage) = run(POLICY, &steps(written));
    assert_eq!(verdicts[0].surprise, None);
    let limits = coverage.limits();
    let seen = limits.iter().map(|it| format!("{} {} {}", it.name, it.checked, it.refused)).collect();
    let exceptions = limits.iter().flat_map(|it| it.plans.iter().chain(&it.overrides));
    let met = exceptions.filter(|it| it.met).map(|it| it.name.clone()).collect();
    (seen, met, coverage.percent())
}

#[test]
fn a_limit_is_covered_by_a_check_and_by_a_refusal() {
    let (seen, met, percent) =
        covered("      - {request: GET /, api_key: k, times: 2, expect: {allowed: 1}}\n");
    assert_eq!(seen, ["search true true", "posts false false", "quiet true false"]);
    assert_eq!(met, ["free"]);
    // Checks: two of three; refusals: one of three; plans and overrides: one of five.
    assert_eq!(u32::from(percent), 4 * 100 / 11);
}

#[test]
fn exceptions_that_exempt_a_request_are_covered() {
    let (seen, met, _) = covered(
        "
      - {request: GET /, api_key: k, plan: pro, times: 3, expect: allowed}
      - {request: GET /, api_key: k, plan: gone, expect: refused}
      - {request: GET /, api_key: k-0, plan: free, expect: allowed}
",
    );
    assert_eq!(seen, ["search true true", "posts false false", "quiet true true"]);
    assert_eq!(met, ["gone", "pro", "k-0"]);
}

#[test]
fn only_complete_coverage_is_100_percent() {
    let most = "
      - {request: GET /, api_key: k, times: 2, expect: {allowed: 1}}
      - {request: GET /, api_key: k, plan: pro, expect: allowed}
      - {request: GET /, api_key: k, plan: gone, expect: refused}
      - {request: GET /, api_key: k-0, times: 3, expect: allowed}
      - {request: GET /posts, api_key: k, plan: pro, times: 2, expect: {allowed: 1}}
";
    assert_eq!(covered(most).2, 90);
    assert_eq!(covered(&format!("{most}      - {{request: GET /, api_key: k-9, expect: allowed}}\n")).2, 100);
}
