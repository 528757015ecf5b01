//! Reads test files with their policies, and checks that they match.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate::policy::Lint;
use tollgate_daemon::Failure;
use tollgate_daemon::configuration::{Inputs, LoadPhase, read_file, shown};
use tollgate_policy_test::{Coverage, Suite, Unprovided};

use super::files::{TestFiles, policy_of, tests_name, tests_of};

/// All tests to run.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<Job>,
    pub(super) policies: Vec<PolicyCoverage>,
    /// The canonical paths of the test files, so that a file that is named twice runs once.
    known: HashSet<PathBuf>,
}

/// The tests of one file.
pub(super) struct Job {
    /// The name of the file.
    pub(super) file: String,
    pub(super) suite: Suite,
    /// The index of their policy.
    pub(super) policy: usize,
}

/// A policy with tests. Several files may test it, and share its coverage.
pub(super) struct PolicyCoverage {
    pub(super) name: String,
    pub(super) policy: Policy,
    /// Claims and plans that no request through its gateway has.
    unprovided: Unprovided,
    pub(super) coverage: Coverage,
    /// The canonical path.
    path: PathBuf,
    /// Whether the policy contains tests itself.
    has_own: bool,
}

impl Jobs {
    /// Reads all files, or returns all mistakes. Adds the names of all files that were read to `files`,
    /// even of invalid ones.
    pub(super) fn read(
        found: &[TestFiles],
        reading: LoadPhase,
        files: &mut Vec<PathBuf>,
    ) -> Result<Self, Failure> {
        let mut jobs = Self::default();
        let mut failures = Vec::new();
        for found in found {
            let read = match found {
                TestFiles::Tests(path) => jobs.add(path, None, reading, files),
                TestFiles::Policy(path) => jobs.add_policy(path, reading, files),
            };
            failures.extend(read.err());
        }
        // A mistake in a policy is reported once, however many files test it.
        let mut distinct: Vec<Failure> = Vec::new();
        for failure in failures {
            if !distinct.contains(&failure) {
                distinct.push(failure);
            }
        }
        if distinct.is_empty() { Ok(jobs) } else { Err(Failure::all(&distinct)) }
    }

    fn add_policy(
        &mut self,
        path: &Path,
        reading: LoadPhase,
        files: &mut Vec<PathBuf>,
    ) -> Result<(), Failure> {
        let tests = tests_of(path);
        if let Some(tests) = &tests {
            return self.add(tests, Some(path), reading, files);
        }
        let at = self.policy(path, reading, files)?;
        if self.policies[at].has_own {
            return Ok(());
        }
        Err(Failure::with_help(
            format_args!("{} has no tests", shown(path)),
            format_args!("put them into {} beside it; `tollgate test --help` shows one", tests_name(path)),
        ))
    }

    /// Adds a test file for this policy, unless it names another.
    fn add(
        &mut self,
        path: &Path,
        policy: Option<&Path>,
        reading: LoadPhase,
        files: &mut Vec<PathBuf>,
    ) -> Result<(), Failure> {
        if !self.known.insert(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())) {
            return Ok(());
        }
        files.push(path.to_owned());
        let name = shown(path);
        let suite =
            Suite::parse(&read_file(path, reading)?).map_err(|wrong| Failure::about(&wrong, &name))?;
        let policy = match (suite.policy(), policy) {
            (None, Some(policy)) => policy.to_owned(),
            (named, _) => policy_of(path, named)?,
        };
        let policy = self.policy(&policy, reading, files)?;
        let tested = &self.policies[policy];
        let checked = suite.check(&tested.policy).and_then(|()| suite.check_identity(tested.unprovided));
        checked.map_err(|wrong| Failure::about(&wrong, &name))?;
        self.list.push(Job { file: name, suite, policy });
        Ok(())
    }

    /// Returns the index of a policy; reads it on first use, with its own tests.
    fn policy(
        &mut self,
        path: &Path,
        reading: LoadPhase,
        files: &mut Vec<PathBuf>,
    ) -> Result<usize, Failure> {
        let truth = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Some(at) = self.policies.iter().position(|it| it.path == truth) {
            return Ok(at);
        }
        files.push(path.to_owned());
        let inputs = Inputs::default().with_config(path);
        let configuration = inputs.load(reading)?;
        let unprovided = Unprovided {
            plans: configuration.warns_of(Lint::UnprovidedPlan),
            claims: configuration.warns_of(Lint::UnprovidedClaim),
        };
        let (name, policy) = (shown(path), configuration.policy().clone());
        let wrong = |it: &_| Failure::about(it, &name);
        let own = Suite::within(configuration.document()).map_err(|it| wrong(&it))?;
        if let Some(own) = &own {
            own.check(&policy).and_then(|()| own.check_identity(unprovided)).map_err(|it| wrong(&it))?;
        }
        let at = self.policies.len();
        let has_own = own.is_some();
        self.list.extend(own.map(|suite| Job { file: name.clone(), suite, policy: at }));
        let coverage = Coverage::of(&policy);
        self.policies.push(PolicyCoverage { name, policy, unprovided, coverage, path: truth, has_own });
        Ok(at)
    }
}
