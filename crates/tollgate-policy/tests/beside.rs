//! Options beside the numbers of a limit: its candidate, its soft threshold, its mode.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_core::{Bucket, Rate, Span};
use tollgate_policy::{
    Allowance, Call, Checks, Cost, KeySource, Limit, LimitBuilder, Missing, Mode, OnOutage, Policy, Soft,
};

const TRIED: &str = "
plans: {default: free}
limits:
  - {name: first, by: ip, bucket: 9/s}
  - name: search
    endpoint: [/search, '/users/{id}/search']
    host: example.com
    method: GET
    headers: {X-Client: '*'}
    by: api_key
    missing: shared
    cost: 2
    count_denied: true
    on_outage: deny
    dialects: github
    soft: 80%
    bucket: 100/minute
    plans: {free: 20/minute}
    candidate:
      windows: [5/second, 50/minute]
      plans: {free: [2/second, 10/minute], gone: blocked}
      overrides: {key-1: unlimited}
  - {name: last, by: ip, bucket: 9/m, candidate: {slots: 3}}
";

fn parse(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn names(policy: &Policy) -> Vec<&str> {
    policy.limits().iter().map(Limit::name).collect()
}

#[test]
fn a_candidate_is_a_separate_limit_right_after_its_live_limit() {
    let policy = parse(TRIED);
    assert_eq!(names(&policy), ["first", "search", "search.candidate", "last", "last.candidate"]);
    for (place, limit) in policy.limits().iter().enumerate() {
        assert_eq!(limit.place(), place);
    }
    let of: Vec<_> = policy.limits().iter().map(Limit::candidate_of).collect();
    assert_eq!(of, [None, None, Some(1), None, Some(3)]);
    assert_eq!(policy.limit("search.candidate").unwrap().place(), 2);
}

#[test]
fn a_candidate_differs_only_in_its_amount() {
    let policy = parse(TRIED);
    let (live, tried) = (&policy.limits()[1], &policy.limits()[2]);
    assert_eq!((live.mode(), tried.mode()), (Mode::Enforce, Mode::Shadow));
    assert_eq!(tried.endpoints(), live.endpoints());
    assert_eq!(tried.hosts(), live.hosts());
    assert!(tried.methods().eq(["GET"]));
    assert_eq!((tried.headers(), tried.by()), (live.headers(), live.by()));
    assert_eq!((tried.missing(), tried.cost()), (Missing::Shared, &Cost::Fixed(2)));
    assert_eq!((tried.count_denied(), tried.on_outage()), (true, OnOutage::Deny));
    assert_eq!((tried.soft(), tried.dialects()), (None, &[][..]), "it does not affect responses");
    let rules: Vec<_> = tried.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(rules, ["search.candidate/1s", "search.candidate/1m"]);
    assert!(tried.rules().iter().all(|rule| live.rules().iter().all(|of_live| of_live.id != rule.id)));
    let key = policy.key(tried, &["key-1"]).unwrap();
    assert_eq!((live.override_for(&key), tried.override_for(&key)), (None, Some(&Allowance::Unlimited)));
    assert_eq!((live.plan("gone"), tried.plan("gone")), (None, Some(&Allowance::Blocked)));
}

#[test]
fn a_candidate_can_set_its_own_count_denied() {
    let policy = parse(
        "limits: [{by: ip, bucket: 9/m, count_denied: true, candidate: {bucket: 5/m, count_denied: false}}]",
    );
    assert_eq!((policy.limits()[0].count_denied(), policy.limits()[1].count_denied()), (true, false));
}

#[test]
fn a_candidate_with_slots_inherits_neither_cost_nor_count_denied() {
    let policy = parse("limits: [{by: ip, bucket: 9/m, cost: 3, count_denied: true, candidate: {slots: 2}}]");
    let tried = &policy.limits()[1];
    assert_eq!((tried.cost(), tried.count_denied()), (&Cost::Fixed(1), false));
}

#[test]
fn a_request_is_checked_by_the_limit_then_by_its_candidate() {
    let policy = parse(TRIED);
    let mut checks = Checks::new();
    let client = Call::new("GET", "/search").host("example.com").header("X-Client", "web");
    policy.match_request(&client.ip([203, 0, 113, 9]).header("X-API-Key", "k"), &mut checks);
    let found: Vec<_> = checks.iter().map(|it| (&*it.rule.name, it.cost)).collect();
    assert_eq!(
        found,
        [
            ("first", 1),
            ("search", 2),
            ("search.candidate/1s", 2),
            ("search.candidate/1m", 2),
            ("last", 1),
            ("last.candidate", 1)
        ]
    );
    assert_eq!(checks[1].key, checks[2].key);
    let Some(Allowance::Rules(of_plan)) = checks[2].limit.plan("free") else { panic!("rates") };
    assert_eq!([checks[2].rule, checks[3].rule], [&of_plan[0], &of_plan[1]]);
}

#[test]
fn a_candidate_of_an_unnamed_limit_uses_the_derived_name() {
    let policy = parse(
        "limits:
           - {endpoint: /a, by: ip, bucket: 9/m, candidate: {bucket: 5/m}}
           - {endpoint: /a.candidate, by: user, bucket: 9/m}",
    );
    assert_eq!(names(&policy), ["a-by-ip", "a-by-ip.candidate", "a.candidate-by-user"]);
}

#[test]
fn a_derived_name_never_takes_that_of_a_candidate() {
    let policy = parse(
        "limits:
           - {endpoint: /x, by: header:B.candidate, bucket: 9/m}
           - {name: x-by-b, by: ip, bucket: 9/m, candidate: {bucket: 5/m}}",
    );
    assert_eq!(names(&policy), ["x-by-b.candidate-2", "x-by-b", "x-by-b.candidate"]);
}

#[test]
fn usage_of_limit_and_candidate_is_carried_over_separately() {
    let before = parse("limits: [{name: a, by: ip, bucket: 9/m, candidate: {bucket: 5/m}}]");
    let after =
        parse("limits: [{name: a, by: ip, bucket: 8/m, candidate: {bucket: 4/m}}]").carry_over_from(&before);
    for (limit, old) in after.limits().iter().zip(before.limits()) {
        let ids: Vec<_> = limit.rules()[0].predecessors().map(|it| it.id).collect();
        assert_eq!(ids, [old.rules()[0].id]);
    }
}

#[test]
fn soft_is_a_threshold_with_an_optional_delay() {
    for (text, soft) in [
        ("80%", Soft { at: 80, tarpit: Span::ZERO }),
        ("'100 %'", Soft { at: 100, tarpit: Span::ZERO }),
        ("{at: 1%}", Soft { at: 1, tarpit: Span::ZERO }),
        ("{at: 75%, tarpit: 250ms}", Soft { at: 75, tarpit: Span::from_millis(250) }),
        ("{tarpit: 10s, at: 75%}", Soft { at: 75, tarpit: Span::from_secs(10) }),
    ] {
        let policy = parse(&format!("limits: [{{by: ip, slots: 4, mode: shadow, soft: {text}}}]"));
        assert_eq!(policy.limits()[0].soft(), Some(&soft), "{text}");
    }
    let built = |at, tarpit| {
        let quota = Bucket::new(Rate::per_second(1)).unwrap();
        let limit = LimitBuilder::new("a").by(KeySource::Ip).quota(quota).soft(at, tarpit);
        *Policy::of([limit]).unwrap().limits()[0].soft().unwrap()
    };
    assert_eq!(built(80, Span::ZERO), Soft { at: 80, tarpit: Span::ZERO });
    assert_eq!(built(0, Span::from_hours(1)), Soft { at: 1, tarpit: Span::from_secs(10) });
}

#[test]
fn ten_thousand_limits_are_switched_and_keep_their_ids() {
    let line = |at| {
        format!(
            "  - {{name: n{at}, endpoint: '/e{at}/**', by: ip, bucket: 9/m, candidate: {{bucket: 5/m}}}}\n"
        )
    };
    let text: String = (0..5_000).map(line).collect();
    let policy = parse(&format!("limits:\n{text}"));
    let switched = policy.with_modes(|limit| if limit.name() == "n7" { Mode::Shadow } else { limit.mode() });
    assert_eq!(switched.limits().len(), 10_000);
    for (now, before) in switched.limits().iter().zip(policy.limits()) {
        let mode = if now.name() == "n7" { Mode::Shadow } else { before.mode() };
        assert_eq!((now.mode(), now.rules()), (mode, before.rules()));
        assert_eq!((now.place(), now.candidate_of()), (before.place(), before.candidate_of()));
    }
    let off = policy.with_modes(|_| Mode::Off);
    let mut checks = Checks::new();
    off.match_request(&Call::new("GET", "/e7/x").ip([203, 0, 113, 9]), &mut checks);
    assert!(checks.is_empty());
    assert_eq!(policy.limit("n7").map(Limit::mode), Some(Mode::Enforce), "the file is as it was");
}
