//! The files as types. `vectors/README.md` says what the fields mean.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tollgate_core as core;
use tollgate_core::{Outcome, Span, Verdict};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    about: String,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) quota: Quota,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize, Serialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case")]
pub(crate) enum Quota {
    TokenBucket {
        count: u64,
        period_us: u64,
        burst: u64,
    },
    FixedWindow {
        count: u64,
        #[serde(flatten)]
        window: Window,
    },
    SlidingWindow {
        count: u64,
        period_us: u64,
        parts: u32,
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

#[derive(Deserialize, Serialize)]
#[serde(tag = "window", rename_all = "kebab-case")]
pub(crate) enum Window {
    Epoch { period_us: u64 },
    FirstRequest { period_us: u64 },
    Calendar { unit: Unit, zone: String },
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    Hour,
    Day,
    Week,
    Month,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Step {
    pub(crate) at_us: u64,
    #[serde(flatten)]
    pub(crate) act: Act,
    pub(crate) expect: Option<Expect>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    Take(u64),
    TakeUpTo(u64),
    Refund { units: u64, taken_at_us: u64 },
    Grant(u64),
    Charge { units: u64, overdraft: Overdraft },
    Acquire(String),
    Release(String),
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Overdraft {
    None,
    OneCapacity,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
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
    pub(crate) fn build(&self) -> core::Quota {
        let rate = |count: &u64, period: &u64| core::Rate::new(*count, Span::from_micros(*period));
        let quota = match self {
            Self::TokenBucket { count, period_us, burst } => {
                core::Bucket::new(rate(count, period_us)).and_then(|it| it.with_burst(*burst)).map(Into::into)
            }
            Self::FixedWindow { count, window } => {
                core::FixedWindow::new(*count, window.build()).map(Into::into)
            }
            Self::SlidingWindow { count, period_us, parts } => {
                let window = core::SlidingWindow::new(rate(count, period_us));
                window.and_then(|it| it.with_parts(*parts)).map(Into::into)
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

impl File {
    /// One step a line, so that a change shows as the lines that changed.
    pub(crate) fn render(&self) -> String {
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
