//! Reports for people, programs and CI servers.

use tollgate_policy_test::report::Detail;

use crate::report;

const POLICY: &str =
    "limits: [{name: a, by: user, bucket: 1/hour}, {name: b, endpoint: /b, by: ip, bucket: 9/s}]";
const TESTS: &str = r#"
tests:
  - name: one an hour
    steps: [{request: GET /, user: ann, expect: allowed}]
  - name: "two <&> \"an\" hour"
    steps:
      - request: GET /
        user: "\e[31m]]>"
        times: 2
        expect: allowed
"#;

#[test]
fn the_text_report_has_a_line_per_test_and_details_of_failures() {
    assert_eq!(
        report(POLICY, TESTS).text(Detail::Missing),
        r#"policy.test.yaml
  ok    one an hour
  FAIL  two <&> "an" hour
        policy.test.yaml:7: GET /, number 2 of 2, 0s after the start
          expected  allowed (line 10)
          came      refused by `a`, wait 1h
          because   a for \u{1b}[31m]]>: refuses; 1 per hour, 0 of 1 left, wait 1h <- decided
1 passed, 1 failed (3 requests, 0 ms)
coverage of policy.yaml: 50 %; 1 of 2 limits asked, 1 of 2 seen refusing
  never asked    b
"#
    );
    let everything = report(POLICY, TESTS).text(Detail::Everything);
    assert!(
        everything.ends_with("  a  asked        refused\n  b  NEVER ASKED  NEVER REFUSED\n"),
        "{everything}"
    );
}

#[test]
fn the_junit_report_is_well_formed_for_any_content() {
    assert_eq!(
        report(POLICY, TESTS).junit(),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="tollgate test" tests="2" failures="1" errors="0" time="0.000000">
  <testsuite name="policy.test.yaml" tests="2" failures="1" errors="0" skipped="0" time="0.000000">
    <testcase name="one an hour" classname="policy.test.yaml" time="0.000000"/>
    <testcase name="two &lt;&amp;&gt; &quot;an&quot; hour" classname="policy.test.yaml" time="0.000000">
      <failure message="expected allowed, came refused by `a`, wait 1h" type="mismatch">policy.test.yaml:7: GET /, number 2 of 2, 0s after the start
  expected  allowed (line 10)
  came      refused by `a`, wait 1h
  because   a for \u{1b}[31m]]&gt;: refuses; 1 per hour, 0 of 1 left, wait 1h &lt;- decided</failure>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn coverage_below_the_required_one_is_a_failed_test_case() {
    let passing = "tests: [{name: one <an> hour, steps: [{request: GET /, user: ann, expect: allowed}]}]";
    let mut report = report(POLICY, passing);
    report.coverage[0].0 = "p<1>.yaml".to_owned();
    report.least = Some(26);
    let junit = report.junit();
    let head = r#"<testsuites name="tollgate test" tests="2" failures="1" errors="0" time="0.000000">"#;
    assert!(junit.contains(head), "{junit}");
    let expected = r#"  <testsuite name="coverage" tests="1" failures="1" errors="0" skipped="0" time="0.000000">
    <testcase name="coverage of p&lt;1&gt;.yaml" classname="p&lt;1&gt;.yaml" time="0.000000">
      <failure message="25 % of p&lt;1&gt;.yaml is covered, and `--min-coverage` asks for 26 %" type="coverage">  never asked    b
  never refused  a</failure>
    </testcase>
  </testsuite>
</testsuites>
"#;
    assert!(junit.ends_with(expected), "{junit}");
    let coverage = &report.json()["coverage"][0];
    assert_eq!((&coverage["enough"], &coverage["least"]), (&false.into(), &26.into()));

    report.least = Some(25);
    let junit = report.junit();
    assert!(junit.contains(r#"tests="2" failures="0""#), "{junit}");
    assert!(junit.contains(r#"classname="p&lt;1&gt;.yaml" time="0.000000"/>"#), "{junit}");
    assert_eq!(report.json()["coverage"][0]["enough"], true);
}

#[test]
fn the_json_report_is_complete() {
    let json = report(POLICY, TESTS).json();
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    let test = &json["files"][0]["tests"][1];
    assert_eq!((&test["line"], &test["requests"]), (&5.into(), &2.into()));
    assert_eq!(test["surprise"]["mismatches"][0]["came"], "refused by `a`, wait 1h");
    assert_eq!(json["coverage"][0]["percent"], 50);
    assert_eq!(json["coverage"][0]["limits"][1]["name"], "b");
}
