//! Throttling of an upstream that rejects most requests.
//!
//! A request is accepted when the upstream answers with any status but 502, 503 and 504. While most requests
//! are not accepted, a share of them is refused here: an upstream that spends its time on rejections cannot
//! recover.
//!
//! A request counts once, however often it is tried at one upstream. One whose caller leaves or fails to send
//! it is not counted: callers could otherwise cut the upstream off from all others.
//!
//! The arithmetic is in `tollgate_overload`. The policy in force has the mode
//! ([`Policy::throttle_mode`](tollgate::Policy::throttle_mode)), so that an operator can change it, and says whether the
//! share is frozen: the counts of that time then stay in force, and the actual ones are kept beside them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tollgate::{Mode, Span, ThrottleShed};
use tollgate_document::{Node, Problems, Words};
use tollgate_overload::throttle::{
    Attempt, AttemptEnd, Throttle, ThrottleReading, ThrottleSettings, class_leniency,
};

const WORDS: Words = Words {
    section: "`throttle`",
    known: &["k", "window", "mode"],
    synonyms: &[
        ("k", &["K", "factor", "multiplier"]),
        ("window", &["interval", "period", "sampling_window"]),
        ("mode: shadow", &["dry_run", "shadow_mode", "shadow"]),
    ],
};

/// The settings of throttles, and their mode in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleConfig {
    /// The settings.
    pub settings: ThrottleSettings,
    /// Whether requests are refused, or only counted.
    pub mode: Mode,
}

/// Reads `on`, `off` or `{k: 2, window: 30s, mode: shadow}`.
pub(crate) fn read(node: &Node, problems: &mut Problems) -> Option<ThrottleConfig> {
    let mut settings = ThrottleSettings::default();
    match node.text() {
        Some("on" | "true") => return Some(ThrottleConfig::default()),
        Some("off" | "false") => return None,
        _ => {}
    }
    let fields = node.fields(&WORDS, problems)?;
    if let Some(node) = fields.get("k") {
        let number = node.text().and_then(|text| text.parse::<f64>().ok());
        let Some(k) = number.filter(|k| (1.1..=100.0).contains(k)) else {
            problems
                .error(node.place, format!("`k` cannot be {}", node.describe()))
                .label("a number from 1.1 to 100")
                .help("with 2, requests are refused when fewer than half of them are accepted");
            return None;
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within its range")]
        let percent = (k * 100.0).round() as u32;
        settings.k_percent = percent;
    }
    if let Some(node) = fields.get("window") {
        let range = Span::from_secs(1)..=Span::from_hours(1);
        settings.window = node.span("`window`", range, problems)?.value.into();
    }
    let mode = fields.get("mode").map(|node| node.choice("`mode`", &MODES, problems));
    let mode = mode.map_or(Some(Mode::Enforce), |found| found.map(|it| it.value))?;
    Some(ThrottleConfig { settings, mode })
}

const MODES: [(&str, Mode); 3] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];

/// The priority class of a request, and the mode of the throttle, as the policy in force has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrottleClass {
    pub(crate) mode: Mode,
    /// Whether the share of refused requests stays as it is.
    pub(crate) is_frozen: bool,
    /// The rank of the class; `None` if the policy has no classes.
    pub(crate) rank: Option<u8>,
    /// The number of classes.
    pub(crate) classes: usize,
}

impl ThrottleClass {
    fn leniency(self) -> f64 {
        self.rank.map_or(1.0, |rank| class_leniency(rank, self.classes))
    }
}

/// The throttle of one upstream, shared by all workers.
pub(crate) struct UpstreamThrottle {
    state: Mutex<ThrottleState>,
    start: Instant,
    /// The requests that were refused, and those that would have been in shadow mode.
    counts: [AtomicU64; 2],
}

/// The counts of an upstream.
struct ThrottleState {
    throttle: Throttle,
    /// The counts whose share stays in force, and their time. The throttle goes on counting.
    frozen: Option<(Throttle, Duration)>,
}

impl ThrottleState {
    /// Keeps the present counts, or continues with the actual ones.
    fn freeze(&mut self, is_frozen: bool, now: Duration) {
        if is_frozen != self.frozen.is_some() {
            self.frozen = is_frozen.then(|| (self.throttle.clone(), now));
        }
    }

    /// Returns the numbers that are in force.
    fn read(&mut self, now: Duration, leniency: f64) -> ThrottleReading {
        match &mut self.frozen {
            Some((throttle, at)) => throttle.read(*at, leniency),
            None => self.throttle.read(now, leniency),
        }
    }
}

/// A request at the throttle of its upstream. If it is dropped before its end, its caller has left, and it is
/// not counted.
#[derive(Debug)]
pub(crate) struct CountedRequest {
    throttle: Arc<UpstreamThrottle>,
    attempt: Option<Attempt>,
}

impl UpstreamThrottle {
    pub(crate) fn new(settings: ThrottleSettings) -> Self {
        Self {
            state: Mutex::new(ThrottleState { throttle: Throttle::new(settings), frozen: None }),
            start: Instant::now(),
            counts: Default::default(),
        }
    }

    /// Returns the request as it is counted, or the reason to refuse it; `None` if the throttle is off.
    /// `random` is between 0 and 1, 1 excluded. `is_upload`: the caller is still sending the body.
    pub(crate) fn admit(
        self: &Arc<Self>,
        class: ThrottleClass,
        random: f64,
        is_upload: bool,
    ) -> Result<Option<CountedRequest>, ThrottleShed> {
        if class.mode == Mode::Off {
            return Ok(None);
        }
        let now = self.start.elapsed();
        let mut state = self.lock();
        state.freeze(class.is_frozen, now);
        let reading = state.read(now, class.leniency());
        let mut attempt = state.throttle.admit_at_share(now, reading.share, random);
        if attempt.is_none() {
            let [refused, shadowed] = &self.counts;
            if class.mode == Mode::Enforce {
                refused.fetch_add(1, Ordering::Relaxed);
                return Err(ThrottleShed::new(reading.requests, reading.accepts, reading.share));
            }
            // It is sent all the same, and counts as a refused request already.
            shadowed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(attempt) = attempt.as_mut().filter(|_| is_upload) {
            state.throttle.count_late(attempt, now);
        }
        drop(state);
        Ok(Some(CountedRequest { throttle: Arc::clone(self), attempt }))
    }

    fn end(&self, attempt: Attempt, end: AttemptEnd) {
        self.lock().throttle.end(attempt, end, self.start.elapsed());
    }

    fn lock(&self) -> MutexGuard<'_, ThrottleState> {
        // Counts that a panic left behind are forgotten with their window.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share(&self) -> f64 {
        self.lock().read(self.start.elapsed(), 1.0).share
    }
}

impl CountedRequest {
    /// Counts the answer of the upstream.
    pub(crate) fn answered(mut self, status: StatusCode) {
        let is_rejection = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        self.end(if is_rejection { AttemptEnd::Rejected } else { AttemptEnd::Accepted });
    }

    /// Counts a failure of the upstream: it cannot be reached, closes the connection or does not answer in
    /// time.
    pub(crate) fn failed(mut self) {
        self.end(AttemptEnd::Rejected);
    }

    fn end(&mut self, end: AttemptEnd) {
        if let Some(attempt) = self.attempt.take() {
            self.throttle.end(attempt, end);
        }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.end(AttemptEnd::Withdrawn);
    }
}

impl fmt::Debug for UpstreamThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamThrottle").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The throttling of one upstream, for metrics.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThrottleCounts {
    /// The URL of the upstream.
    pub upstream: String,
    /// The requests that were refused so far.
    pub refused: u64,
    /// The requests that would have been refused in shadow mode.
    pub shadow_refused: u64,
    /// The share of requests that are refused now, 0 to 1.
    pub share: f64,
}

impl ThrottleCounts {
    pub(crate) fn of(upstream: String, throttle: &UpstreamThrottle) -> Self {
        let [refused, shadow_refused] = throttle.counts.each_ref().map(|it| it.load(Ordering::Relaxed));
        Self { upstream, refused, shadow_refused, share: throttle.share() }
    }
}
