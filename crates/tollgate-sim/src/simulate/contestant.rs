//! An algorithm with its numbers, defined by the text of a policy.
//!
//! Rates are therefore parsed as in a policy, and errors have the same messages.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tollgate::{Policy, Quota, Rate, Span};
use tollgate_document::sanitize::Printable;
use tollgate_document::{Diagnostic, Severity, nearest, parse_span};

use crate::traffic::{MAX_PERIOD, TrafficError};

/// Number of parts of `sliding-parts`, as the documentation recommends.
pub const SUB_WINDOWS: u32 = 7;

/// An algorithm that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Choice {
    /// A counter per window.
    FixedWindow,
    /// Two counters and an estimate.
    SlidingWindow,
    /// A few counters, placed where the traffic is.
    SlidingParts,
    /// As `SlidingParts`, but a part counts in full while any of it may be in the window.
    SlidingStrict,
    /// A log of every request; the reference for the others.
    SlidingLog,
    /// A bucket of the size of the rate's count, unless a burst is given.
    TokenBucket,
    /// Evenly spaced requests, unless a burst is given.
    Gcra,
    /// Requests above the rate wait in a queue of the size of the rate's count, or of the burst.
    LeakyQueue,
}

impl Choice {
    /// All algorithms. The position determines the color in charts: append, do not insert.
    pub const ALL: [Self; 8] = [
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingParts,
        Self::SlidingLog,
        Self::TokenBucket,
        Self::Gcra,
        Self::SlidingStrict,
        Self::LeakyQueue,
    ];

    /// Returns the name on the command line and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingParts => "sliding-parts",
            Self::SlidingStrict => "sliding-strict",
            Self::SlidingLog => "sliding-log",
            Self::TokenBucket => "token-bucket",
            Self::Gcra => "gcra",
            Self::LeakyQueue => "leaky-queue",
        }
    }

    /// Returns the algorithm of this name.
    pub fn of(word: &str) -> Result<Self, ContestantError> {
        Self::ALL.into_iter().find(|it| it.word() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::word);
            let meant = nearest(word, words.iter().copied());
            let meant = meant.map(|it| format!("did you mean `{it}`? ")).unwrap_or_default();
            ContestantError {
                message: format!("no algorithm is called `{}`", Printable(word)),
                help: format!("{meant}there are {}", words.join(", ")),
                about: About::Algorithm,
            }
        })
    }

    const fn takes_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::Gcra)
    }

    /// Returns the name in policies, the number of parts, and whether they are strict.
    const fn policy_syntax(self) -> (&'static str, Option<u32>, bool) {
        match self {
            Self::SlidingParts => ("sliding-window", Some(SUB_WINDOWS), false),
            Self::SlidingStrict => ("sliding-window", None, true),
            other => (other.word(), None, false),
        }
    }
}

/// An algorithm with its numbers.
#[derive(Clone)]
pub struct Contestant {
    /// The algorithm.
    pub choice: Choice,
    /// The rate.
    pub rate: Rate,
    pub(super) quota: Quota,
    /// The key, as in the `by` of a policy.
    pub(super) by: String,
    /// The text of a policy with one limit.
    text: String,
}

/// Error of an invalid algorithm, rate or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{between}{help}", between = if .help.is_empty() { "" } else { "; " })]
pub struct ContestantError {
    message: String,
    help: String,
    /// The invalid part.
    pub about: About,
}

/// The part that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The name of the algorithm.
    Algorithm,
    /// The numbers of the rate.
    Rate,
    /// The key.
    Key,
}

impl ContestantError {
    /// Returns the message, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the advice; may be empty.
    pub fn help(&self) -> &str {
        &self.help
    }

    fn of(diagnostic: &Diagnostic, about: About) -> Self {
        let mut help = diagnostic.label.clone();
        for more in &diagnostic.help {
            let between = if help.is_empty() {
                ""
            } else if help.ends_with('?') {
                " "
            } else {
                "; "
            };
            help = format!("{help}{between}{more}");
        }
        Self { message: diagnostic.message.clone(), help, about }
    }
}

impl Contestant {
    /// Creates an algorithm with a rate such as `10/minute` and a key as in the `by` of a policy. A burst applies to
    /// algorithms that have one and is ignored by the others. A burst in the rate (`10/minute, burst 20`) takes
    /// precedence.
    ///
    /// ```
    /// # use tollgate_sim::simulate::{Choice, Contestant};
    /// let bucket = Contestant::new(Choice::TokenBucket, "10/minute", Some(20), "ip")?;
    /// assert_eq!(bucket.quota().to_string(), "token-bucket 10/minute, burst 20");
    /// let error = Contestant::new(Choice::Gcra, "10/minuet", None, "ip").err().expect("no unit");
    /// assert!(error.to_string().contains("minute"));
    /// # Ok::<(), tollgate_sim::simulate::ContestantError>(())
    /// ```
    pub fn new(choice: Choice, rate: &str, burst: Option<u64>, by: &str) -> Result<Self, ContestantError> {
        let (algorithm, parts, strict) = choice.policy_syntax();
        let (numbers, own) =
            rate.split_once(',').map_or((rate, None), |(it, burst)| (it, Some(burst.trim())));
        let rate = match (choice.takes_burst(), own, burst) {
            (true, None, Some(burst)) => format!("{rate}, burst {burst}"),
            // Algorithms with a burst check its value.
            (false, Some(burst), _) if burst.starts_with("burst") => numbers.to_owned(),
            _ => rate.to_owned(),
        };
        let text = |by: &str| {
            let mut limit = json!({"name": "simulated", "by": by, "algorithm": algorithm, "rate": rate});
            let parts = parts.map(|parts| ("parts", parts.into()));
            let strict = strict.then_some(("strict", true.into()));
            let queue = (choice == Choice::LeakyQueue)
                .then(|| ("queue", json!({"length": queue_length(&rate, own, burst)})));
            for (word, value) in parts.into_iter().chain(strict).chain(queue) {
                limit[word] = value;
            }
            // JSON is YAML, and quoting keeps any input a single value.
            json!({"limits": [limit]}).to_string()
        };
        // Parse with a valid key first: an error is then about the rate.
        parsed(&text("ip"), About::Rate)?;
        let text = text(by);
        let policy = parsed(&text, About::Key)?;
        let quota =
            policy.limits().first().and_then(|limit| limit.rules().first()).map(|rule| rule.quota.clone());
        let quota = quota.ok_or_else(|| ContestantError {
            message: format!("`{rate}` limits nothing"),
            help: String::new(),
            about: About::Rate,
        })?;
        let rate = match &quota {
            Quota::Bucket(bucket) => bucket.rate(),
            other => Rate::new(other.capacity(), other.period()),
        };
        Ok(Self { choice, rate, quota, by: by.to_owned(), text })
    }

    /// Returns the quota.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns a policy with this limit. Its text was parsed before.
    pub(super) fn policy(&self) -> Result<Policy, ContestantError> {
        parsed(&self.text, About::Rate)
    }

    /// Returns all algorithms that accept the rate, and for each other one the reason. Returns the error if no
    /// algorithm accepts it.
    pub fn all(
        rate: &str,
        burst: Option<u64>,
        by: &str,
    ) -> Result<(Vec<Self>, Vec<String>), ContestantError> {
        let (mut made, mut left_out) = (Vec::new(), Vec::new());
        // A queue is compared with the others only on request: it delays requests, which they do not.
        for choice in Choice::ALL.into_iter().filter(|it| *it != Choice::LeakyQueue) {
            match Self::new(choice, rate, burst, by) {
                Ok(contestant) => made.push(contestant),
                Err(error) => left_out.push((choice, error)),
            }
        }
        if made.is_empty() {
            return Err(left_out.swap_remove(0).1);
        }
        let described = |(choice, error): (Choice, ContestantError)| {
            format!("{} is left out: {}", choice.word(), error.message)
        };
        Ok((made, left_out.into_iter().map(described).collect()))
    }
}

/// Returns the length of the queue: the burst in the rate (`10/minute, burst 20`), or the burst, or the count of the rate.
fn queue_length(rate: &str, own: Option<&str>, burst: Option<u64>) -> u64 {
    let own = own.and_then(|it| it.strip_prefix("burst")).and_then(|it| it.trim().parse().ok());
    let count = || rate.split('/').next().and_then(|it| it.trim().replace('_', "").parse().ok());
    own.or(burst).or_else(count).unwrap_or(1)
}

fn parsed(text: &str, about: About) -> Result<Policy, ContestantError> {
    Policy::parse(text).map_err(|wrong| {
        let first = wrong.iter().find(|it| it.severity == Severity::Error).or(wrong.first());
        let unworded = || ContestantError { message: wrong.to_string(), help: String::new(), about };
        first.map_or_else(unworded, |first| ContestantError::of(first, about))
    })
}

/// Error of an invalid length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALength {
    /// The text is not a length of time.
    #[error("a length of time is a number and a unit, such as 500ms, 30s, 5m or 1h")]
    Unwritten,
    /// The length is zero or too long.
    #[error("{}", TrafficError::Duration)]
    OutOfBounds,
}

/// Parses a length of time as in a policy: `90s`, `10m`.
///
/// ```
/// # use tollgate::Span;
/// # use tollgate_sim::simulate::{NotALength, length};
/// assert_eq!(length("90s"), Ok(Span::from_secs(90)));
/// assert_eq!(length("soon"), Err(NotALength::Unwritten));
/// assert_eq!(length("100000d"), Err(NotALength::OutOfBounds));
/// ```
pub fn length(text: &str) -> Result<Span, NotALength> {
    let text = text.trim();
    let unit = text.trim_start_matches(|it: char| it.is_ascii_digit());
    match parse_span(text) {
        Ok(span) if !span.is_zero() && span <= MAX_PERIOD => Ok(span),
        // The unit exists, so the number is too large.
        Err(_) if unit.len() < text.len() && parse_span(&format!("1{unit}")).is_ok() => {
            Err(NotALength::OutOfBounds)
        }
        Ok(_) => Err(NotALength::OutOfBounds),
        Err(_) => Err(NotALength::Unwritten),
    }
}
