//! Matching an ordinary request allocates nothing on the heap.

use tollgate_policy::{Call, Checks, Descriptor, Matched, Policy};
use tollgate_testkit::{CountingAllocator, allocations};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[track_caller]
fn four_checks_without_allocation<'p>(mut matching: impl FnMut(&mut Checks<'p>) -> Matched<'p>) {
    let mut checks = Checks::new();
    let allocated = allocations(|| {
        for _ in 0..100 {
            assert_eq!(matching(&mut checks), Matched::Applies);
        }
    });
    assert_eq!((checks.len(), allocated), (4, 0));
}

#[test]
fn an_ordinary_request_with_three_limits_allocates_nothing() {
    let policy = Policy::parse(
        r#"
deny: [{ip: 198.51.100.0/24}, {user: mallory}]
plans: {from: "header:X-Plan"}
limits:
  - {endpoint: /api/**, by: ip, bucket: 100/minute}
  - {endpoint: "/api/v1/users/{id}", method: GET, by: [api_key, "path:id"], windows: [10/second, 1000/hour]}
  - {endpoint: /api/v1/**, host: "*.example.com", by: user, bucket: 10/minute, plans: {pro: 100/minute}, overrides: {x: blocked}}
"#,
    )
    .unwrap();
    let call = Call::new("GET", "/api/v1/users/42?tok=1")
        .ip([203, 0, 113, 9])
        .host("API.example.com:443")
        .header("x-plan", "pro")
        .header("authorization", "Bearer 0123456789abcdef0123456789abcdef")
        .header("x-user-id", "ann@example.com");
    four_checks_without_allocation(|checks| policy.match_request(&call, checks));
}

#[test]
fn finding_the_priority_class_of_a_request_allocates_nothing() {
    let policy = Policy::parse(
        r#"
plans: {from: "header:X-Plan"}
priorities:
  - {name: critical, endpoint: /payments/**, method: POST, host: "*.example.com"}
  - {name: paid, plan: [pro, max], user: [ann, bob]}
  - {name: normal}
  - {name: bulk, headers: {x-priority: bulk}}
shed: {fleet: {slots: 100, reserve: {critical: 20%}}}
limits:
  - {by: ip, bucket: 100/minute}
  - {by: user, windows: [10/second, 1000/hour]}
"#,
    )
    .unwrap();
    let call = Call::new("GET", "/search")
        .ip([203, 0, 113, 9])
        .host("API.example.com:443")
        .header("x-plan", "pro")
        .header("x-priority", "bulk")
        .header("x-user-id", "carl");
    four_checks_without_allocation(|checks| policy.match_request(&call, checks));
}

#[test]
fn an_ordinary_descriptor_with_three_limits_allocates_nothing() {
    let policy = Policy::parse(
        r#"
deny: [{ip: 198.51.100.0/24}, {user: mallory}]
limits:
  - {descriptor: [plan, user, path], bucket: 100/minute}
  - {descriptor: [plan=gold, user, "path=/v1/*"], domain: edge, by: descriptor:user, windows: [10/second, 1000/hour]}
  - {descriptor: [plan, user, "path=*/search"], by: global, bucket: 10/minute, plans: {gold: 100/minute}}
"#,
    )
    .unwrap();
    let entries = [("plan", "gold"), ("user", "ann@example.com"), ("path", "/v1/search")];
    let descriptor = Descriptor::new("edge", &entries);
    four_checks_without_allocation(|checks| policy.match_descriptor(&descriptor, checks));
}
