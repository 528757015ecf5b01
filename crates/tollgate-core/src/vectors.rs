//! The shared test vectors as types: the reference for every store and script.
//!
//! `vectors/*.json` in the source hold named cases with times, acts and the exact answers;
//! `vectors/README.md` defines the fields. The answers come from models in rational arithmetic
//! (`tests/model`), never from this crate's code.

use std::fmt::Write as _;

use crate as core;
use crate::{Adjustment, Amount, ChargeTimes, LeaseRequest, Outcome, Owner, Span, Timestamp, Verdict};
use serde::{Deserialize, Serialize};

const TEXTS: [(&str, &str); 8] = [
    ("token-bucket", include_str!("../vectors/token-bucket.json")),
    ("leaky-queue", include_str!("../vectors/leaky-queue.json")),
    ("fixed-window", include_str!("../vectors/fixed-window.json")),
    ("sliding-window", include_str!("../vectors/sliding-window.json")),
    ("sliding-window-in-parts", include_str!("../vectors/sliding-window-in-parts.json")),
    ("sliding-log", include_str!("../vectors/sliding-log.json")),
    ("concurrency", include_str!("../vectors/concurrency.json")),
    ("lease", include_str!("../vectors/lease.json")),
];

/// Returns the name of each vector file with its text.
pub const fn texts() -> [(&'static str, &'static str); 8] {
    TEXTS
}

/// Returns all cases of all files.
pub fn cases() -> impl Iterator<Item = Case> {
    TEXTS.into_iter().flat_map(|(name, text)| File::parse(name, text).cases)
}

/// One file: the cases of one algorithm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    about: String,
    /// Its cases.
    pub cases: Vec<Case>,
}

/// One case: a quota and a sequence of steps on one key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The behavior that the case shows.
    pub name: String,
    /// The quota under test.
    pub quota: Quota,
    /// The steps, in order, all on one key.
    pub steps: Vec<Step>,
}

/// The numbers of a quota.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case")]
#[allow(missing_docs)] // as vectors/README.md names them
pub enum Quota {
    TokenBucket {
        count: u64,
        period_us: u64,
        burst: u64,
    },
    LeakyQueue {
        count: u64,
        period_us: u64,
        length: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_us: Option<u64>,
        #[serde(default, skip_serializing_if = "is_zero")]
        free: u64,
    },
    FixedWindow {
        count: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        tally: bool,
        #[serde(flatten)]
        window: Window,
    },
    SlidingWindow {
        count: u64,
        period_us: u64,
        parts: u32,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        strict: bool,
    },
    SlidingLog {
        count: u64,
        period_us: u64,
    },
    Concurrency {
        slots: u32,
        ttl_us: u64,
    },
}

/// The boundaries of a fixed window.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "window", rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Window {
    Epoch { period_us: u64 },
    FirstRequest { period_us: u64 },
    Calendar { unit: Unit, zone: String },
}

/// The unit of a calendar window.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

/// One step of a case.
#[derive(Debug, Deserialize, Serialize)]
pub struct Step {
    /// The time in microseconds since 1970.
    pub at_us: u64,
    /// The act.
    #[serde(flatten)]
    pub act: Act,
    /// The expected answer.
    pub expect: Option<Expect>,
}

/// An act on the key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Act {
    Take(u64),
    TakeUpTo(u64),
    Refund {
        units: u64,
        taken_at_us: u64,
        /// The end of the charge, if it is known: the time of the take and its `reset_after_us`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_us: Option<u64>,
    },
    Grant(u64),
    Charge {
        units: u64,
        overdraft: Overdraft,
    },
    Lease {
        units: u32,
        ttl_us: u64,
    },
    ReturnLease {
        units: u32,
        taken_at_us: u64,
        ttl_us: u64,
    },
    Acquire(String),
    Release(String),
}

/// The lowest balance that a charge may leave.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Overdraft {
    None,
    OneCapacity,
}

/// The expected answer, or the expected result of a read right after an act without an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    verdict: Word,
    units: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    wait_us: u64,
    remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
    reset_after_us: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Admitted,
    Refused,
    Never,
}

impl From<Outcome> for Expect {
    fn from(outcome: Outcome) -> Self {
        Self {
            verdict: match outcome.verdict {
                Verdict::Admitted { .. } => Word::Admitted,
                Verdict::Refused { .. } => Word::Refused,
                Verdict::Never => Word::Never,
            },
            units: outcome.units(),
            wait_us: outcome.wait().as_micros(),
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after().map(Span::as_micros),
            reset_after_us: outcome.reset_after.as_micros(),
        }
    }
}

impl Quota {
    /// Builds the quota.
    pub fn build(&self) -> core::Quota {
        let rate = |count: &u64, period: &u64| core::Rate::new(*count, Span::from_micros(*period));
        let quota = match self {
            Self::TokenBucket { count, period_us, burst } => {
                core::Bucket::new(rate(count, period_us)).and_then(|it| it.with_burst(*burst)).map(Into::into)
            }
            Self::LeakyQueue { count, period_us, length, wait_us, free } => {
                let queue =
                    core::Queue { length: *length, wait: wait_us.map(Span::from_micros), free: *free };
                core::Bucket::new(rate(count, period_us)).and_then(|it| it.with_queue(queue)).map(Into::into)
            }
            Self::FixedWindow { count, tally: false, window } => {
                core::FixedWindow::new(*count, window.build()).map(Into::into)
            }
            Self::FixedWindow { count, tally: true, window } => {
                core::FixedWindow::tally(*count, window.build()).map(Into::into)
            }
            Self::SlidingWindow { count, period_us, parts, strict: false } => {
                core::Quota::sliding_window(rate(count, period_us), *parts)
            }
            Self::SlidingWindow { count, period_us, parts, strict: true } => {
                core::SlidingParts::new(rate(count, period_us), *parts).map(|it| it.strict().into())
            }
            Self::SlidingLog { count, period_us } => {
                core::SlidingLog::new(rate(count, period_us)).map(Into::into)
            }
            Self::Concurrency { slots, ttl_us } => {
                core::Concurrency::new(*slots, Span::from_micros(*ttl_us)).map(Into::into)
            }
        };
        quota.expect("the files hold valid quotas")
    }
}

impl Window {
    fn build(&self) -> core::Window {
        match self {
            Self::Epoch { period_us } => core::Window::Epoch(Span::from_micros(*period_us)),
            Self::FirstRequest { period_us } => core::Window::Anchored(Span::from_micros(*period_us)),
            Self::Calendar { unit, zone } => {
                let unit = match unit {
                    Unit::Hour => core::CalendarUnit::Hour,
                    Unit::Day => core::CalendarUnit::Day,
                    Unit::Week => core::CalendarUnit::Week,
                    Unit::Month => core::CalendarUnit::Month,
                };
                core::Window::Calendar(core::Calendar::new(unit, zone).expect("a zone that exists"))
            }
        }
    }
}

impl Act {
    /// Converts the act to a call to a store.
    pub fn store_call(&self) -> StoreCall {
        match self {
            Self::Take(units) => StoreCall::Acquire(Amount::Exactly(*units)),
            Self::TakeUpTo(most) => StoreCall::Acquire(Amount::UpTo(*most)),
            Self::Lease { units, ttl_us } => {
                let ttl = Span::from_micros(*ttl_us);
                StoreCall::Acquire(Amount::Lease(LeaseRequest { units: *units, ttl }))
            }
            Self::ReturnLease { units, taken_at_us, ttl_us } => StoreCall::Adjust(Adjustment::ReturnLease {
                units: *units,
                taken_at: Timestamp::from_micros(*taken_at_us),
                ttl: Span::from_micros(*ttl_us),
            }),
            Self::Acquire(name) => StoreCall::Acquire(Amount::Slot(owner(name))),
            Self::Refund { units, taken_at_us, until_us } => {
                let mut charge = ChargeTimes::without_end(Timestamp::from_micros(*taken_at_us));
                charge.until = until_us.map_or(charge.until, Timestamp::from_micros);
                StoreCall::Adjust(Adjustment::Refund { units: *units, charge })
            }
            Self::Grant(units) => StoreCall::Adjust(Adjustment::Grant { units: *units }),
            Self::Charge { units, overdraft } => {
                StoreCall::Adjust(Adjustment::Charge { units: *units, overdraft: overdraft.build() })
            }
            Self::Release(name) => StoreCall::Adjust(Adjustment::Release { owner: owner(name) }),
        }
    }
}

/// A call to a store.
#[derive(Clone, Copy, Debug)]
pub enum StoreCall {
    /// An acquisition.
    Acquire(Amount),
    /// An adjustment. The expected answer is the result of a read after it.
    Adjust(Adjustment),
}

impl Overdraft {
    /// Converts to the type of the core.
    pub const fn build(self) -> core::Overdraft {
        match self {
            Self::None => core::Overdraft::None,
            Self::OneCapacity => core::Overdraft::OneCapacity,
        }
    }
}

/// Converts the name of an owner to a number: its bytes, of which there are at most sixteen.
pub fn owner(name: &str) -> Owner {
    Owner(name.bytes().fold(0, |number, byte| number << 8 | u128::from(byte)))
}

impl File {
    /// Parses a file.
    pub fn parse(name: &str, text: &str) -> Self {
        let file = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"));
        file.expect("every file has the format of vectors/README.md")
    }

    /// Renders one step per line, so that a diff shows the changed steps.
    pub fn render(&self) -> String {
        let mut out = format!("{{\n\"about\": {},\n\"cases\": [", json(&self.about));
        for (index, case) in self.cases.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (name, quota) = (json(&case.name), json(&case.quota));
            let steps: Vec<_> = case.steps.iter().map(|step| format!("  {}", json(step))).collect();
            write!(
                out,
                "{comma}\n{{\"name\": {name},\n \"quota\": {quota},\n \"steps\": [\n{}\n]}}",
                steps.join(",\n")
            )
            .expect("writing to a string does not fail");
        }
        out.push_str("\n]\n}\n");
        out
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data becomes JSON")
}
