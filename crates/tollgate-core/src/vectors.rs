//! What every store and script is judged by, as types.
//!
//! `vectors/*.json` beside the source hold named cases with times, acts and the
//! exact answers; `vectors/README.md` says what the fields mean. The answers come
//! from models in rational arithmetic (`tests/model`), never from this code.

use std::fmt::Write as _;

use crate as core;
use crate::{Adjustment, Amount, Outcome, Owner, Span, Timestamp, Verdict};
use serde::{Deserialize, Serialize};

const TEXTS: [(&str, &str); 6] = [
    ("token-bucket", include_str!("../vectors/token-bucket.json")),
    ("fixed-window", include_str!("../vectors/fixed-window.json")),
    ("sliding-window", include_str!("../vectors/sliding-window.json")),
    ("sliding-window-in-parts", include_str!("../vectors/sliding-window-in-parts.json")),
    ("sliding-log", include_str!("../vectors/sliding-log.json")),
    ("concurrency", include_str!("../vectors/concurrency.json")),
];

/// The files' texts, by the algorithm each is about.
pub const fn texts() -> [(&'static str, &'static str); 6] {
    TEXTS
}

/// Every case of every file.
pub fn cases() -> impl Iterator<Item = Case> {
    TEXTS.into_iter().flat_map(|(name, text)| File::parse(name, text).cases)
}

/// One file: the cases of one algorithm.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    about: String,
    /// Its cases.
    pub cases: Vec<Case>,
}

/// One key's story.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The limit.
    pub quota: Quota,
    /// What happens, one after the other, to one key.
    pub steps: Vec<Step>,
}

/// A limit, by its numbers.
#[derive(Deserialize, Serialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case")]
#[allow(missing_docs)] // as vectors/README.md names them
pub enum Quota {
    TokenBucket {
        count: u64,
        period_us: u64,
        burst: u64,
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

/// Where a fixed window begins and ends.
#[derive(Deserialize, Serialize)]
#[serde(tag = "window", rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Window {
    Epoch { period_us: u64 },
    FirstRequest { period_us: u64 },
    Calendar { unit: Unit, zone: String },
}

/// A square of a calendar.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

/// One thing that happens.
#[derive(Deserialize, Serialize)]
pub struct Step {
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// What is done.
    #[serde(flatten)]
    pub act: Act,
    /// What must be answered.
    pub expect: Option<Expect>,
}

/// What is done to the key.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Act {
    Take(u64),
    TakeUpTo(u64),
    Refund { units: u64, taken_at_us: u64 },
    Grant(u64),
    Charge { units: u64, overdraft: Overdraft },
    Acquire(String),
    Release(String),
}

/// How far a charge may go.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Overdraft {
    None,
    OneCapacity,
}

/// What must be answered, or what looking says right after an act that has no answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    verdict: Word,
    units: u64,
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
            remaining: outcome.remaining,
            retry_after_us: outcome.retry_after().map(Span::as_micros),
            reset_after_us: outcome.reset_after.as_micros(),
        }
    }
}

impl Quota {
    /// The limit itself.
    pub fn build(&self) -> core::Quota {
        let rate = |count: &u64, period: &u64| core::Rate::new(*count, Span::from_micros(*period));
        let quota = match self {
            Self::TokenBucket { count, period_us, burst } => {
                core::Bucket::new(rate(count, period_us)).and_then(|it| it.with_burst(*burst)).map(Into::into)
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
        quota.expect("the files hold quotas that can be served")
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
    /// The act as a store is asked for it.
    pub fn ask(&self) -> Ask {
        match self {
            Self::Take(units) => Ask::Acquire(Amount::Exactly(*units)),
            Self::TakeUpTo(most) => Ask::Acquire(Amount::UpTo(*most)),
            Self::Acquire(name) => Ask::Acquire(Amount::Slot(owner(name))),
            Self::Refund { units, taken_at_us } => {
                let taken_at = Timestamp::from_micros(*taken_at_us);
                Ask::Adjust(Adjustment::Refund { units: *units, taken_at })
            }
            Self::Grant(units) => Ask::Adjust(Adjustment::Grant { units: *units }),
            Self::Charge { units, overdraft } => {
                Ask::Adjust(Adjustment::Charge { units: *units, overdraft: overdraft.build() })
            }
            Self::Release(name) => Ask::Adjust(Adjustment::Release { owner: owner(name) }),
        }
    }
}

/// What a store is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// A check.
    Acquire(Amount),
    /// A change; what must be answered is what looking says after it.
    Adjust(Adjustment),
}

impl Overdraft {
    /// The same in the words of the code.
    pub const fn build(self) -> core::Overdraft {
        match self {
            Self::None => core::Overdraft::None,
            Self::OneCapacity => core::Overdraft::OneCapacity,
        }
    }
}

/// An owner's name as a number: its bytes, which are at most sixteen.
pub fn owner(name: &str) -> Owner {
    Owner(name.bytes().fold(0, |number, byte| number << 8 | u128::from(byte)))
}

impl File {
    /// Reads a file.
    pub fn parse(name: &str, text: &str) -> Self {
        let file = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"));
        file.expect("every file has the format of vectors/README.md")
    }

    /// One step a line, so that a change shows as the lines that changed.
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

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data becomes JSON")
}
