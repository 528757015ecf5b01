//! The expected outcome of a request, and its differences from the actual one.
//!
//! If a step has several requests, the decision is expected of each, and everything else of the last.
//!
//! Not here: parsing (`file_format::expect`).

use http::HeaderName;
use tollgate::policy::Glob;
use tollgate::{Policy, PriorityClass, Span};
use tollgate_document::{Located, Problems, hint, nearest};

use crate::answer::{Answer, ClientView};
use crate::explanation;
use crate::run::Mismatch;

/// The expected outcome of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectation {
    /// Decision of every request.
    pub(crate) fate: Option<Located<Fate>>,
    /// Number of allowed requests.
    pub(crate) allowed: Option<Located<u64>>,
    /// The limiting limit, or one of its windows.
    pub(crate) limit: Option<Located<String>>,
    pub(crate) left: Vec<Left>,
    /// The wait that callers are told.
    pub(crate) wait: Option<Located<Span>>,
    pub(crate) status: Option<Located<u16>>,
    pub(crate) headers: Vec<Header>,
    /// The priority class.
    pub(crate) priority: Option<Located<String>>,
    /// All limits that checked the request.
    pub(crate) limits: Option<Names>,
    /// All limits whose soft threshold is reached.
    pub(crate) soft: Option<Names>,
    /// All limits in shadow mode that would have refused.
    pub(crate) would_refuse: Option<Names>,
}

type Names = Located<Vec<Located<String>>>;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Allowed,
    Refused,
}

/// The remaining units.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// Limit or window; `None` for the limiting one.
    pub(crate) of: Option<Located<String>>,
    pub(crate) count: Located<u64>,
}

/// A header of the response.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: HeaderName,
    /// The value as written in the file.
    pub(crate) shown: String,
    pub(crate) value: Located<Value>,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Exactly(String),
    Like(Glob),
    Absent,
}

impl Fate {
    pub(crate) const fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Refused }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
        }
    }
}

impl Expectation {
    /// Reports names that no limit of the policy has.
    pub(crate) fn check_names(&self, policy: &Policy, problems: &mut Problems) {
        let listed = [&self.limits, &self.soft, &self.would_refuse];
        check_limits(listed.into_iter().flatten().flat_map(|it| &it.value), policy, problems);
        let names = policy.limits().iter().map(tollgate::Limit::name);
        let windows = policy.limits().iter().flat_map(tollgate::Limit::rules).map(|rule| &*rule.name);
        let names: Vec<_> = names.chain(windows).collect();
        for name in self.limit.iter().chain(self.left.iter().filter_map(|it| it.of.as_ref())) {
            known(name, &names, problems);
        }
        let classes = || policy.priorities().iter().map(PriorityClass::name);
        if let Some(class) = &self.priority
            && !classes().any(|name| name == class.value)
        {
            problems
                .error(class.place, format!("the policy has no priority class `{}`", class.value))
                .help(hint(&class.value, "priority classes", classes()));
        }
    }

    /// Returns the mismatch of one request of a step.
    pub(crate) fn of_each<S>(&self, answer: &Answer<'_, '_, S>) -> Option<Mismatch> {
        let expected = self.fate?;
        let came = Fate::of(answer.decision.is_allowed());
        (came != expected.value).then(|| Mismatch {
            line: expected.place.line,
            expected: expected.value.word().to_owned(),
            came: explanation::fate(answer),
        })
    }

    /// Returns the mismatch in the number of allowed requests.
    pub(crate) fn of_all(&self, allowed: u64, times: u64) -> Option<Mismatch> {
        let expected = self.allowed?;
        (allowed != expected.value).then(|| Mismatch {
            line: expected.place.line,
            expected: format!("{} of {times} allowed", expected.value),
            came: format!("{allowed} allowed, {} refused", times - allowed),
        })
    }

    /// Returns the mismatches of the last request.
    pub(crate) fn of_last<S>(&self, answer: &Answer<'_, '_, S>) -> Vec<Mismatch> {
        let mut wrong = Vec::new();
        let mut compare = |line: u32, expected: String, came: String| {
            if expected != came {
                wrong.push(Mismatch { line, expected, came });
            }
        };
        if let Some(limit) = &self.limit {
            let expected = limit.value.as_str();
            let came = match answer.limiting() {
                Some((name, window)) if expected == name || expected == window => format!("`{expected}`"),
                Some((_, window)) => format!("`{window}`"),
                None => "nobody".to_owned(),
            };
            compare(limit.place.line, format!("decided by `{expected}`"), format!("decided by {came}"));
        }
        if let Some(class) = &self.priority {
            let came = answer.decision.priority().map_or("none", |it| it.name());
            compare(class.place.line, format!("priority `{}`", class.value), format!("priority `{came}`"));
        }
        for left in &self.left {
            let (of, came) = left.found(answer);
            let came = came.map_or_else(|| "not asked".to_owned(), |it| format!("{it} left"));
            compare(left.count.place.line, format!("{of}{} left", left.count.value), format!("{of}{came}"));
        }
        if let Some(wait) = &self.wait {
            let came = answer.wait().map_or_else(|| "no wait".to_owned(), |it| format!("wait {it}"));
            compare(wait.place.line, format!("wait {}", wait.value), came);
        }
        for (word, expected, came) in [
            ("limits asked", &self.limits, answer.limits()),
            ("soft", &self.soft, answer.soft()),
            ("would refuse", &self.would_refuse, answer.would_refuse()),
        ] {
            if let Some(expected) = expected {
                let names = expected.value.iter().map(|it| it.value.as_str()).collect();
                compare(
                    expected.place.line,
                    format!("{word}: {}", sorted(names)),
                    format!("{word}: {}", sorted(came)),
                );
            }
        }
        if self.status.is_some() || !self.headers.is_empty() {
            wrong.extend(self.of_words(&answer.worded()));
        }
        wrong
    }

    /// Returns the mismatches of the response that a client sees.
    fn of_words(&self, worded: &ClientView) -> Vec<Mismatch> {
        let mut wrong = Vec::new();
        if let Some(status) = self.status
            && worded.status.map(|it| it.as_u16()) != Some(status.value)
        {
            let came =
                worded.status.map_or_else(|| "allowed".to_owned(), |it| format!("status {}", it.as_u16()));
            let expected = format!("status {}", status.value);
            wrong.push(Mismatch { line: status.place.line, expected, came });
        }
        wrong.extend(self.headers.iter().filter_map(|header| header.mismatch(worded)));
        wrong
    }
}

impl Left {
    /// Returns the limit and its remaining units; `None` if it was not checked. Of several windows, the one with the
    /// least.
    fn found<S>(&self, answer: &Answer<'_, '_, S>) -> (String, Option<u64>) {
        let Some(of) = &self.of else {
            let limiting = answer.decision.limiting();
            return (String::new(), limiting.map(|it| it.outcome().remaining));
        };
        let named =
            answer.decision.limits().filter(|it| it.limit().name() == of.value || it.name() == of.value);
        (format!("`{}`: ", of.value), named.map(|it| it.outcome().remaining).min())
    }
}

impl Header {
    fn mismatch(&self, worded: &ClientView) -> Option<Mismatch> {
        let lines = worded.headers.get_all(&self.name).iter();
        let lines: Vec<_> = lines.map(|it| String::from_utf8_lossy(it.as_bytes())).collect();
        let (is_right, expected) = match &self.value.value {
            Value::Exactly(text) => (lines.iter().any(|it| it == text), text.clone()),
            Value::Like(pattern) => (lines.iter().any(|it| pattern.fits(it)), pattern.to_string()),
            Value::Absent => (lines.is_empty(), "absent".to_owned()),
        };
        let came = if lines.is_empty() { "absent".to_owned() } else { lines.join(", ") };
        (!is_right).then(|| Mismatch {
            line: self.value.place.line,
            expected: format!("{}: {expected}", self.shown),
            came: format!("{}: {came}", self.shown),
        })
    }
}

/// Checks that the policy has these limits.
pub(crate) fn check_limits<'n>(
    names: impl Iterator<Item = &'n Located<String>>,
    policy: &Policy,
    problems: &mut Problems,
) {
    let all: Vec<_> = policy.limits().iter().map(tollgate::Limit::name).collect();
    names.for_each(|name| known(name, &all, problems));
}

/// Checks that a name is known.
fn known(name: &Located<String>, known: &[&str], problems: &mut Problems) {
    if known.contains(&name.value.as_str()) {
        return;
    }
    let problem = problems.error(name.place, format!("the policy has no limit `{}`", name.value));
    match nearest(&name.value, known.iter().copied()) {
        Some(meant) => {
            problem.label(format!("did you mean `{meant}`?"));
        }
        None if known.is_empty() => {
            problem.help("it has no limits at all");
        }
        None if known.len() <= 20 => {
            problem.help(format!("its limits are {}", known.join(", ")));
        }
        None => {
            problem.help("`tollgate test --coverage` lists the names of all limits");
        }
    }
}

fn sorted(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
