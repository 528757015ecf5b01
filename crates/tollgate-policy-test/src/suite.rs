//! A parsed test file.
//!
//! Not here: parsing (`file_format`), running (`run`).

use tollgate::Policy;
use tollgate_document::{Diagnostics, Document, Located, Problems};

use crate::request::{RequestKind, TestRequest};
use crate::timeline::{Settle, Step};
use crate::{expectation, file_format};

/// A test file.
///
/// ```
/// # use tollgate_policy_test::Suite;
/// let suite = Suite::parse("tests: [{name: a, steps: [{request: GET /, expect: allowed}]}]")?;
/// assert_eq!((suite.policy(), suite.tests()[0].name()), (None, "a"));
/// let wrong = Suite::parse("tests: [{name: a, steps: [{request: GET /, expect: alowed}]}]").unwrap_err();
/// assert_eq!(wrong[0].label, "did you mean `allowed`?");
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Suite {
    pub(crate) document: Document,
    pub(crate) policy: Option<String>,
    pub(crate) tests: Vec<Test>,
}

/// A test.
#[derive(Clone, Debug)]
pub struct Test {
    pub(crate) name: Located<String>,
    pub(crate) steps: Vec<Step>,
}

impl Suite {
    /// Parses a test file, or returns all of its mistakes.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let document = Document::parse(text).map_err(file_format::reworded)?;
        let mut problems = Problems::default();
        let file = file_format::file(document.root(), &mut problems);
        Self::of(document, file, problems)
    }

    /// Returns the tests in the section `tests` of a policy; `None` if it has none.
    pub fn within(policy: &Document) -> Result<Option<Self>, Diagnostics> {
        let Some(section) = policy.root().get("tests") else { return Ok(None) };
        let mut problems = Problems::default();
        let file = file_format::section(section, &mut problems);
        Self::of(policy.clone(), file, problems).map(Some)
    }

    fn of(
        document: Document,
        (policy, tests): (Option<String>, Vec<Test>),
        problems: Problems,
    ) -> Result<Self, Diagnostics> {
        if problems.has_errors() {
            return Err(problems.into_diagnostics(&document));
        }
        Ok(Self { document, policy, tests })
    }

    /// Returns the path of the policy as written: relative to the test file, unless it is absolute.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Returns the tests, in the order of the file.
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// Checks that the named limits exist in the policy.
    pub fn check(&self, policy: &Policy) -> Result<(), Diagnostics> {
        let mut problems = Problems::default();
        for step in self.tests.iter().flat_map(|test| &test.steps) {
            if let Some(expectation) = &step.expectation {
                expectation.check_names(policy, &mut problems);
            }
            if let Some(Settle::Limits(costs)) = &step.settle {
                expectation::check_limits(costs.iter().map(|(name, _)| name), policy, &mut problems);
            }
        }
        if problems.has_errors() { Err(problems.into_diagnostics(&self.document)) } else { Ok(()) }
    }
}

/// Properties that no served request has with this configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unprovided {
    /// The limits have plans, but no setting names the source of a request's plan.
    pub plans: bool,
    /// The policy reads claims, but no setting verifies tokens.
    pub claims: bool,
}

impl Suite {
    /// Reports tests that state a plan or claims which no served request has.
    ///
    /// Such a test would pass although the plan or claim never applies.
    pub fn check_identity(&self, unprovided: Unprovided) -> Result<(), Diagnostics> {
        let mut problems = Problems::default();
        let mut reported = Vec::new();
        for step in self.tests.iter().flat_map(|test| &test.steps) {
            let TestRequest { what: RequestKind::Request(_), places, .. } = &step.request else { continue };
            for (place, is_unprovided, words) in
                [(places.plan, unprovided.plans, &PLAN), (places.claims, unprovided.claims, &CLAIMS)]
            {
                // Defaults apply to many steps and are reported once.
                let Some(place) = place.filter(|place| is_unprovided && !reported.contains(place)) else {
                    continue;
                };
                reported.push(place);
                problems.error(place, words[0]).label(words[1]).help(words[2]).help(words[3]);
            }
        }
        if problems.has_errors() { Err(problems.into_diagnostics(&self.document)) } else { Ok(()) }
    }
}

const PLAN: [&str; 4] = [
    "no request through the gateway has a plan: the policy has no `plans.from`",
    "this plan would never apply",
    "write `plans: {from: \"header:X-Plan\"}` into the policy, and send that header in the test",
    "if your own service names plans (`POST /v1/check`, the tower layer), write `expect: unprovided-plan` or \
     `listen: {gateway: off}` into the policy",
];

const CLAIMS: [&str; 4] = [
    "no request through the gateway has claims: it verifies no tokens",
    "no limit would see them",
    "count by a header that your authentication sets, and send that header in the test",
    "if your own service verifies tokens (`POST /v1/check`, the tower layer), write `expect: unprovided-claim` or \
     `listen: {gateway: off}` into the policy",
];

impl Test {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// Returns the first line.
    pub const fn line(&self) -> u32 {
        self.name.place.line
    }
}
