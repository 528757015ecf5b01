//! A million hostile requests neither grow the memory nor cause a panic.
#![allow(unsafe_code, reason = "a global allocator that counts must implement an unsafe trait")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::{Call, Clock as _, Limiter, ManualClock, MemoryStore, Policy, Span, Timestamp};
use tollgate_telemetry::{WatchSettings, Watcher};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const POLICY: &str = "
deny: [{user: mallory}]
limits:
  - {name: api, endpoint: '/**', by: user, bucket: 2/hour}
  - {name: odd, endpoint: '/**', by: 'header:x-odd', windows: [5/s, 100/hour]}
  - {name: cost, endpoint: '/**', by: ip, rate: 50/minute, algorithm: fixed-window, cost: 'header:x-cost'}
  - {name: quiet, endpoint: '/**', by: user, bucket: 1/hour, mode: shadow}
  - {name: keyed, endpoint: '/keyed/**', by: api_key, bucket: 9/s, missing: refuse}
";

/// `SplitMix64`.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[test]
fn a_million_hostile_requests_do_not_grow_memory() {
    let clock = ManualClock::at(Timestamp::from_secs(1_731_672_000));
    let settings = WatchSettings { records: 1_000, trace_one_in: 3, ..WatchSettings::default() };
    let watcher = Watcher::new(&settings);
    let store = MemoryStore::with_clock(50_000, clock.clone());
    let limiter = Limiter::with_store(Policy::parse(POLICY).unwrap(), store)
        .with_observer_on(std::sync::Arc::new(watcher.clone()), clock.clone());
    let long: String = "/keyed/\u{202e}\u{1f980}é\"<script>\n".repeat(400);
    let odd: Vec<u8> = (0..=255).cycle().take(2_000).collect();
    let (mut state, mut settled, mut refused) = (0x5eed_u64, 0, 0_u64);
    let most = 1_000_000_u64;
    for turn in 0..most {
        let rng = random(&mut state);
        let start = usize::try_from(rng % 64).unwrap();
        let start = long.char_indices().map(|it| it.0).nth(start).unwrap_or(0);
        let length = if rng.is_multiple_of(1_009) { long.len() } else { start + 40 };
        let end =
            (start..=length.min(long.len())).rev().find(|&at| long.is_char_boundary(at)).unwrap_or(start);
        let user = match rng >> 60 {
            0 => "mallory".to_owned(),
            1 => "same".to_owned(),
            _ => format!("{rng:x}\u{0}\u{7f}\u{202e}"),
        };
        // Long keys are digested and unusual ones escaped, which is slow, so they are rare.
        let length = match rng % 256 {
            0 => 1_000,
            1..16 => rng >> 20 & 127,
            _ => rng >> 20 & 7,
        };
        let bytes = &odd[usize::try_from(rng >> 8 & 511).unwrap()..][..usize::try_from(length).unwrap()];
        let call = Call::new(&long[start..end], &long[start..end])
            .user(&user)
            .host(&long[start..end])
            .ip(u32::try_from(rng >> 32).unwrap().to_be_bytes())
            .header("x-odd", bytes)
            .header("x-cost", if rng.is_multiple_of(5) { "99999999999999999999" } else { "3" })
            .header("traceparent", bytes);
        let decision = limiter.check(&call);
        refused += u64::from(!decision.is_allowed());
        if turn.is_multiple_of(1_000) {
            clock.advance(Span::from_millis(500));
            watcher.tick(clock.now());
        }
        if turn.is_multiple_of(50_000) {
            let top = watcher.top(clock.now(), 10);
            assert!(top.keys.iter().all(|it| it.key.len() < 256));
            for record in watcher.latest_records(50, false) {
                let sizes = (record.method.len() <= 32, record.path.len() <= 256);
                assert_eq!(sizes, (true, true));
                assert!(record.host.as_deref().is_none_or(|host| host.len() <= 128));
                record.limits.iter().for_each(|limit| drop(limit.arithmetic(record.counted_at)));
                drop(record.summary());
            }
            watcher.alerts(clock.now());
        }
        // By now every pane of the last five minutes has been used once.
        if turn == most / 4 * 3 {
            settled = LIVE.load(Ordering::Relaxed);
        }
    }
    let after = LIVE.load(Ordering::Relaxed);
    assert!(refused > most / 10, "{refused}");
    // The size of a record depends on its texts, so the number of bytes varies slightly.
    assert!(after < settled + settled / 20, "{settled} bytes after three quarters, {after} at the end");
    println!("{after} bytes at the end, {settled} after three quarters; {refused} refused");
}
