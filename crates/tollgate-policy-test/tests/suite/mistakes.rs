//! Mistakes are found before a test runs, each with its line and a suggestion.

use tollgate::Policy;
use tollgate_document::Document;
use tollgate_policy_test::Suite;

use crate::steps;

/// Returns the mistakes of a file, as `line: message [label]`.
fn mistakes(text: &str) -> Vec<String> {
    let wrong = match Suite::parse(text) {
        Err(wrong) => wrong,
        Ok(suite) => {
            let policy = Policy::parse("limits: [{name: login, by: ip, windows: [1/s, 9/m]}]").unwrap();
            suite.check(&policy).expect_err("it has a mistake")
        }
    };
    wrong.iter().map(|it| format!("{}: {} [{}]", it.place.line, it.message, it.label)).collect()
}

#[track_caller]
fn check_step(step: &str, expected: &str) {
    let text = steps(&format!("      - {{request: GET /, expect: allowed}}\n      - {step}\n"));
    let found = mistakes(&text);
    assert!(found.len() == 1 && found[0] == format!("6: {expected}"), "{step}\n{found:#?}");
}

#[test]
fn steps_are_checked_word_by_word() {
    for (step, expected) in [
        ("{reqest: GET /}", "unknown word `reqest` in a step [did you mean `request`?]"),
        ("{sleep: 5s}", "unknown word `sleep` in a step [did you mean `wait`?]"),
        ("{request: /login}", "a request is a method and a path [did you mean `GET /login`?]"),
        ("{request: get /login}", "methods are written in capitals [did you mean `GET /login`?]"),
        ("{request: GET login}", "no request can be for `login` []"),
        ("{request: G(T /}", "`G(T` is not a method []"),
        ("{request: GET /, ip: localhost}", "`ip` is an address [`localhost` is not]"),
        (
            "{request: GET /, headers: {'a b': 1}}",
            "no header can have this name [letters, digits and !#$%&'*+-.^_`|~ only]",
        ),
        (
            "{request: GET /, headers: {Host: a}}",
            "the host has a word of its own [write `host` beside `request`]",
        ),
        ("{request: GET /, times: 0}", "`times` is at least 1 [this is less]"),
        (
            "{request: GET /, every: 1s}",
            "`every` is the time between several requests [how many? say it with `times`]",
        ),
        ("{request: GET /, settle: {logn: 5}}", "the policy has no limit `logn` [did you mean `login`?]"),
        ("{wait: 5}", "`5` is not a length of time [did you mean `5s`?]"),
        ("{at: noon}", "`noon` is not a time []"),
        ("{at: '2026-01-01T00:00:00'}", "`2026-01-01T00:00:00` is not a time []"),
        (
            "{at: '9999-12-31T23:59:59Z'}",
            "`9999-12-31T23:59:59Z` is out of range [a clock of tests goes from 1970-01-01 to 9999-12-30]",
        ),
        (
            "{at: '1969-12-31T23:59:59Z'}",
            "`1969-12-31T23:59:59Z` is out of range [a clock of tests goes from 1970-01-01 to 9999-12-30]",
        ),
        ("{at: '2025-12-31T23:59:59Z'}", "the clock of a test does not go back [0s have passed by now]"),
        ("{wait: 99999d}", "`wait` is between 0s and 3660d [`99999d` is not]"),
        ("{wait: 1s, at: +5s}", "a step has `wait` or `at`, not both []"),
        ("{wait: 1s, expect: allowed}", "`expect` says something of a request, and there is none []"),
        ("{}", "nothing happens in this step []"),
        ("{request: GET /, descriptor: a=b}", "a step has a `request` or a `descriptor`, not both []"),
        ("{descriptor: plan}", "an entry of a descriptor has a value [did you mean `plan=…`?]"),
        ("{descriptor: a=b, user: ann}", "`user` belongs to a `request` []"),
        (
            "{descriptor: a=b, domain: tollgate}",
            "in the domain `tollgate` descriptors describe requests [write the request itself]",
        ),
        (
            "{descriptor: a=b, expect: {status: 429}}",
            "a proxy words its own answers: `status` is of a `request` []",
        ),
    ] {
        check_step(step, expected);
    }
}

#[test]
fn expectations_are_checked_word_by_word() {
    for (expect, expected) in [
        ("denied", "`expect` cannot be `denied` [did you mean `refused`?]"),
        ("{verdict: allowed}", "unknown word `verdict` in `expect` [did you mean `decision`?]"),
        ("{allowed: 2}", "`allowed` is at most 1 [this is more]"),
        ("{allowed: 1, refused: 1}", "1 and 1 are not 1 []"),
        ("{decision: allowed, allowed: 1}", "`decision` is of every request, and this counts them []"),
        ("{decision: allowed, retry_after: 1s}", "what is allowed has no `retry_after` of ours []"),
        (
            "{status: 200}",
            "`status` is of a refusal: 429, 403 or what a dialect says [the service behind answers so, not we]",
        ),
        ("{limit: logn}", "the policy has no limit `logn` [did you mean `login`?]"),
        ("{remaining: {login/1h: 0}}", "the policy has no limit `login/1h` [did you mean `login/1s`?]"),
        ("{limits: [login, other]}", "the policy has no limit `other` []"),
    ] {
        check_step(&format!("{{request: GET /, expect: {expect}}}"), expected);
    }
}

#[test]
fn files_are_checked_as_a_whole() {
    for (text, expected) in [
        ("", "1: the file is empty []"),
        ("policy: a.yaml", "1: the file has no `tests` []"),
        ("tests: []", "1: `tests` is empty []"),
        ("tests: {a: b}", "1: `tests` is a list [this is a map]"),
        ("tests: [{steps: [{request: GET /, expect: allowed}]}]", "1: this test has no `name` []"),
        ("tests: [{name: a}]", "1: this test has no `steps` []"),
        (
            "tests: [{name: a, steps: [{request: GET /}]}]",
            "1: this test expects nothing: it would pass whatever happens []",
        ),
        (
            "tests: [{name: \"a\\nb\", steps: [{request: GET /, expect: allowed}]}]",
            "1: a name is one line of at most 200 characters [this has other characters in it]",
        ),
        (
            "defaults: {request: GET /}\ntests: [{name: a, steps: [{request: GET /, expect: allowed}]}]",
            "1: unknown word `request` in `defaults` []",
        ),
        (
            "defaults: {ip: '::1', peer: '::1'}\ntests: [{name: a, steps: [{request: GET /, expect: allowed}]}]",
            "1: `ip` is the resolved client; `peer` is the connection, from which the policy resolves the client []",
        ),
    ] {
        assert_eq!(mistakes(text), [expected], "{text}");
    }
    let twice = "tests:\n- {name: a, steps: [{request: GET /, expect: allowed}]}\n- {name: a, steps: [{request: GET /, expect: allowed}]}\n";
    assert_eq!(mistakes(twice), ["3: two tests have this name [again here]"]);
}

#[test]
fn tests_may_be_part_of_the_policy_file() {
    let policy = "limits: [{name: a, by: ip, bucket: 1/s}]\n";
    let read = |text: &str| Suite::within(&Document::parse(text).unwrap());
    assert!(read(policy).unwrap().is_none());
    let suite =
        read(&format!("{policy}tests: [{{name: one, steps: [{{request: GET /, expect: allowed}}]}}]\n"));
    assert_eq!(suite.unwrap().unwrap().tests()[0].name(), "one");
    let wrong = read(&format!("{policy}tests: [{{name: one, stepps: []}}]\n")).unwrap_err();
    assert_eq!((wrong[0].place.line, wrong[0].label.as_str()), (2, "did you mean `steps`?"));
}
