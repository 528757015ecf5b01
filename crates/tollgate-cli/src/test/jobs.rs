//! Reads files of tests, each with its policy, and checks that they fit together.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use tollgate::Policy;
use tollgate::policy::Lint;
use tollgate_policy_test::{Coverage, Suite, Unprovided};

use super::files::{TestFiles, policy_of, tests_name, tests_of};
use crate::configuration::{Inputs, LoadPhase, read_file, shown};
use crate::failure::Failure;

/// Everything that is to be run.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<Job>,
    pub(super) policies: Vec<PolicyCoverage>,
    /// Where the files of tests are in truth: one that is named twice, or with its policy too, is run once.
    known: HashSet<PathBuf>,
}

/// The tests of one file.
pub(super) struct Job {
    /// How it is called.
    pub(super) file: String,
    pub(super) suite: Suite,
    /// Which of the policies they are about.
    pub(super) policy: usize,
}

/// A policy with tests: several files may be about it, and they cover it together.
pub(super) struct PolicyCoverage {
    pub(super) name: String,
    pub(super) policy: Policy,
    /// What no request through its gateway has.
    unprovided: Unprovided,
    pub(super) coverage: Coverage,
    /// Where it is in truth.
    path: PathBuf,
    /// The tests that stand in it.
    has_own: bool,
}

impl Jobs {
    /// Reads all, or says everything that is wrong. `files` takes the names of all that was looked at, whether it
    /// was right or wrong.
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
        // A policy with a mistake is told of once, however many files are about it.
        let mut told: Vec<Failure> = Vec::new();
        for failure in failures {
            if !told.contains(&failure) {
                told.push(failure);
            }
        }
        if told.is_empty() { Ok(jobs) } else { Err(Failure::all(&told)) }
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

    /// A file of tests, which is about this policy unless it names another.
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

    /// The place of a policy, which is read unless it was before. Its own tests come with it.
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
        let inputs = Inputs { config: Some(path.to_owned()), ..Inputs::default() };
        let configuration = inputs.load(reading)?;
        let unprovided = Unprovided {
            plans: configuration.warns_of(Lint::UnprovidedPlan),
            claims: configuration.warns_of(Lint::UnprovidedClaim),
        };
        let (name, policy) = (shown(path), configuration.policy);
        let wrong = |it: &_| Failure::about(it, &name);
        let own = Suite::within(&configuration.document).map_err(|it| wrong(&it))?;
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
