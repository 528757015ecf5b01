//! A file of tests that was understood.
//!
//! Not here: reading its words (`written`), running it (`run`).

use tollgate::Policy;
use tollgate::policy::{Diagnostics, Document, Located, Problems};

use crate::timeline::{Settle, Step};
use crate::{expectation, written};

/// A file of tests.
///
/// ```
/// # use tollgate_suite::Suite;
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

/// One test.
#[derive(Clone, Debug)]
pub struct Test {
    pub(crate) name: Located<String>,
    pub(crate) steps: Vec<Step>,
}

impl Suite {
    /// Reads a file of tests, or says everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        let document = Document::parse(text).map_err(written::reworded)?;
        let mut problems = Problems::default();
        let file = written::file(document.root(), &mut problems);
        Self::of(document, file, problems)
    }

    /// The tests that stand in a policy, in its section `tests`; `None` where it has none.
    pub fn within(policy: &Document) -> Result<Option<Self>, Diagnostics> {
        let Some(section) = policy.root().get("tests") else { return Ok(None) };
        let mut problems = Problems::default();
        let file = written::section(section, &mut problems);
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

    /// The file of the policy, as it was written: beside the file of tests, unless it is absolute.
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The tests, in file order.
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// Whether the limits that are named exist in the policy.
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

impl Test {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// The line it begins in.
    pub const fn line(&self) -> u32 {
        self.name.place.line
    }
}
