//! An ordinary request is surveyed without touching the heap.
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tollgate_policy::{Call, Checks, Descriptor, Policy, Survey};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let mut checks = Checks::new();
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        assert_eq!(policy.survey(&call, &mut checks), Survey::Applies);
    }
    let allocated = ALLOCATIONS.with(Cell::get) - before;
    assert_eq!(checks.len(), 4);
    assert_eq!(allocated, 0);
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
    let call = Call::described(Descriptor { domain: "edge", entries: &entries });
    let mut checks = Checks::new();
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        assert_eq!(policy.survey(&call, &mut checks), Survey::Applies);
    }
    let allocated = ALLOCATIONS.with(Cell::get) - before;
    assert_eq!(checks.len(), 4);
    assert_eq!(allocated, 0);
}
