//! Finds test files: by name, beside a policy, or recursively in a directory.
//!
//! Directories that begin with a dot, `node_modules` and `target` are skipped, and links to directories
//! are not followed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tollgate_daemon::Failure;
use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;

/// The suffixes of test files.
const TEST_SUFFIXES: [&str; 2] = [".test.yaml", ".test.yml"];
/// The suffixes of policies.
const POLICY_SUFFIXES: [&str; 2] = [".yaml", ".yml"];
/// Directories of tools that are skipped.
const IGNORED_FOLDERS: [&str; 2] = ["node_modules", "target"];
/// The maximum depth of directories.
const MAX_DEPTH: usize = 32;
/// The maximum number of test files.
const MAX_FILES: usize = 10_000;

/// A path that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TestFiles {
    /// A test file.
    Tests(PathBuf),
    /// A named policy, whose tests must be found.
    Policy(PathBuf),
}

/// Resolves the paths, each once; without any, the current directory.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<TestFiles>, Failure> {
    let here = [PathBuf::from(".")];
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for path in if paths.is_empty() { &here[..] } else { paths } {
        match find_one(path) {
            Ok(more) => found.extend(more),
            Err(failure) => failures.push(failure),
        }
    }
    if !failures.is_empty() {
        return Err(Failure::all(&failures));
    }
    let mut known = HashSet::new();
    found.retain(|it| {
        let (TestFiles::Tests(path) | TestFiles::Policy(path)) = it;
        known.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone()))
    });
    Ok(found)
}

fn find_one(path: &Path) -> Result<Vec<TestFiles>, Failure> {
    if !path.is_dir() {
        return Ok(vec![if is_tests(path) {
            TestFiles::Tests(path.into())
        } else {
            TestFiles::Policy(path.into())
        }]);
    }
    let mut files = Vec::new();
    let failed =
        |error| Failure::io(format_args!("cannot look through {}", shown(path)), &error, Attempt::List);
    collect(path, MAX_DEPTH, &mut files).map_err(failed)?;
    if files.is_empty() {
        return Err(Failure::with_help(
            format_args!("there is no *.test.yaml in {} or below", shown(path)),
            "put the tests of policy.yaml into policy.test.yaml beside it; `tollgate test --help` shows one",
        ));
    }
    files.sort();
    Ok(files
        .into_iter()
        .map(|it| TestFiles::Tests(it.strip_prefix(".").map(Path::to_owned).unwrap_or(it)))
        .collect())
}

fn collect(folder: &Path, levels: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if name.as_encoded_bytes().starts_with(b".")
            || IGNORED_FOLDERS.iter().any(|it| name == OsStr::new(it))
        {
            continue;
        }
        if entry.file_type()?.is_dir() {
            if levels > 0 {
                collect(&path, levels - 1, files)?;
            }
        } else if is_tests(&path) && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("more than {MAX_FILES} files of tests")));
        }
    }
    Ok(())
}

fn is_tests(path: &Path) -> bool {
    stem(path, &TEST_SUFFIXES).is_some()
}

/// Returns the file name without its suffix, if it has one of these.
fn stem<'p>(path: &'p Path, endings: &[&str]) -> Option<&'p str> {
    let name = path.file_name()?.to_str()?;
    endings.iter().find_map(|ending| name.strip_suffix(ending)).filter(|stem| !stem.is_empty())
}

/// Returns the test file beside a policy, if there is one.
pub(super) fn tests_of(policy: &Path) -> Option<PathBuf> {
    let stem = stem(policy, &POLICY_SUFFIXES)?;
    TEST_SUFFIXES
        .iter()
        .map(|ending| policy.with_file_name(format!("{stem}{ending}")))
        .find(|it| it.is_file())
}

/// Returns the name of the test file beside a policy.
pub(super) fn tests_name(policy: &Path) -> String {
    let stem = stem(policy, &POLICY_SUFFIXES).unwrap_or("policy");
    shown(&policy.with_file_name(format!("{stem}{}", TEST_SUFFIXES[0])))
}

/// Returns the policy of a test file: the one that it names, or the one with the same stem.
pub(super) fn policy_of(tests: &Path, named: Option<&str>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(tests.with_file_name("").join(named));
    }
    let stem = stem(tests, &TEST_SUFFIXES).unwrap_or("policy");
    let mut beside = POLICY_SUFFIXES.iter().map(|ending| tests.with_file_name(format!("{stem}{ending}")));
    beside.find(|it| it.is_file()).ok_or_else(|| {
        Failure::with_help(
            format_args!("{} has no policy: there is no {stem}.yaml beside it", shown(tests)),
            "name the file in it: `policy: FILE`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    #[test]
    fn directories_are_searched_recursively_except_those_of_tools() {
        let files = Scratch::new();
        for folder in ["deep/er", ".git", "node_modules/x"] {
            fs::create_dir_all(files.path().join(folder)).unwrap();
        }
        for name in [
            "b.test.yaml",
            "a.test.yml",
            "a.yml",
            "deep/er/c.test.yaml",
            ".git/d.test.yaml",
            "node_modules/x/e.test.yaml",
            ".test.yaml",
        ] {
            files.write(name, "");
        }
        let found = find(&[files.path().to_owned(), files.path().join("a.test.yml")]).unwrap();
        let names = found.iter().map(|it| match it {
            TestFiles::Tests(path) => path.strip_prefix(files.path()).unwrap().to_str().unwrap(),
            TestFiles::Policy(_) => "a policy",
        });
        assert_eq!(names.collect::<Vec<_>>(), ["a.test.yml", "b.test.yaml", "deep/er/c.test.yaml"]);
        assert_eq!(policy_of(&files.path().join("a.test.yml"), None).unwrap(), files.path().join("a.yml"));
        assert_eq!(tests_of(&files.path().join("a.yml")).unwrap(), files.path().join("a.test.yml"));
    }
}
