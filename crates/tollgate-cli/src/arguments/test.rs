//! Arguments of `test`.

use std::path::PathBuf;

use clap::Args;

/// Runs the tests of policies
#[derive(Debug, Args)]
#[command(after_help = "\
A test file is beside its policy: policy.test.yaml beside policy.yaml. For example:
  defaults: {ip: 203.0.113.9}
  tests:
    - name: ten logins a minute, then one every six seconds
      steps:
        - {request: POST /api/v1/login, times: 10, expect: allowed}
        - {request: POST /api/v1/login, expect: {decision: refused, retry_after: 6s}}
        - {wait: 6s, request: POST /api/v1/login, expect: allowed}

Examples:
  tollgate test                            all *.test.yaml in this directory and below
  tollgate test policy.yaml                the tests beside this policy, or within it
  tollgate test policy.yaml --watch        reruns at each change
  tollgate test --junit report.xml --min-coverage 100%

Time is virtual: a test that waits for a day finishes at once. All words are in
docs/testing.md; `tollgate schema --tests` is for editors.

Exit status: 0 all passed; 1 a test failed, or coverage is too low; 2 a file has a
mistake, and nothing was run.")]
pub(crate) struct Test {
    /// Test files, policies, or directories [default: the current directory]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Runs only tests whose name contains this text, ignoring case. Omits coverage
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["coverage", "min_coverage"])]
    pub(crate) filter: Option<String>,
    /// Reruns the tests when a file changes, until interrupted
    #[arg(long, conflicts_with_all = ["json", "min_coverage"])]
    pub(crate) watch: bool,
    /// Lists the coverage of every limit, not only what is missing
    #[arg(long)]
    pub(crate) coverage: bool,
    /// Fails below this coverage of a policy: limits checked, limits that refused, plans and overrides
    /// used
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) min_coverage: Option<u8>,
    /// Also writes a `JUnit` XML report for CI servers
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Prints the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses `80%` or `80`.
fn percent(typed: &str) -> Result<u8, String> {
    let number = typed.strip_suffix('%').unwrap_or(typed).trim();
    let percent = number.parse().ok().filter(|it| *it <= 100);
    percent.ok_or_else(|| "0% to 100%, without a fraction".to_owned())
}
