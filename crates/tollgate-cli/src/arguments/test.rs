//! What can be typed after `test`.

use std::path::PathBuf;

use clap::Args;

/// Runs the tests of policies
#[derive(Debug, Args)]
#[command(after_help = "\
A file of tests stands beside its policy: policy.test.yaml beside policy.yaml. For example:
  defaults: {ip: 203.0.113.9}
  tests:
    - name: ten logins a minute, then one every six seconds
      steps:
        - {request: POST /api/v1/login, times: 10, expect: allowed}
        - {request: POST /api/v1/login, expect: {decision: refused, retry_after: 6s}}
        - {wait: 6s, request: POST /api/v1/login, expect: allowed}

Examples:
  tollgate test                            all *.test.yaml in this folder and below
  tollgate test policy.yaml                the tests beside this policy, or within it
  tollgate test policy.yaml --watch        again at each change
  tollgate test --junit report.xml --min-coverage 100%

Time is virtual: a test that waits for a day is done at once. All words are in
docs/testing.md; `tollgate schema --tests` is for editors.

Exit status: 0 all passed; 1 one failed, or too little is covered; 2 a file has a
mistake, and nothing was run.")]
pub(crate) struct Test {
    /// Files of tests, policies, or folders. Without any: this folder
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only tests whose name holds this text, in any case. Coverage is left out then
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["coverage", "min_coverage"])]
    pub(crate) filter: Option<String>,
    /// Runs them again at each change of a file, until it is interrupted
    #[arg(long, conflicts_with_all = ["json", "min_coverage"])]
    pub(crate) watch: bool,
    /// Says of every limit whether it was asked and whether it refused, not only what is missing
    #[arg(long)]
    pub(crate) coverage: bool,
    /// Fails when less of a policy is covered: limits asked, limits seen refusing, plans and overrides met
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) min_coverage: Option<u8>,
    /// Writes a report for CI servers as well, as the XML of `JUnit`
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Answers in JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `80%` or `80`.
fn percent(typed: &str) -> Result<u8, String> {
    let number = typed.strip_suffix('%').unwrap_or(typed).trim();
    let percent = number.parse().ok().filter(|it| *it <= 100);
    percent.ok_or_else(|| "0% to 100%, without a fraction".to_owned())
}
