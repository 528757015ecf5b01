//! What can be typed after `validate`.

use std::path::PathBuf;

use clap::Args;
use tollgate::policy::Lint;

/// Checks files, and warns of what is probably not meant
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate validate policy.yaml
  tollgate validate --strict policies/*.yaml
  tollgate validate policy.yaml --settings settings.yaml --capacity 500/second
  tollgate validate --envoy-config /etc/ratelimit/config
  tollgate validate --explain fixed-window-alone

A warning that you have thought about is kept by `expect: CODE` in the limit, or at
the top of the file.

Exit status 0 when all can be served, warnings or not; 1 with --strict and a warning;
2 when one cannot be served.")]
pub(crate) struct Validate {
    /// Policies, and settings too if they have them; each is checked on its own
    #[arg(value_name = "FILE", required_unless_present_any = ["envoy_config", "explain"])]
    pub(crate) files: Vec<PathBuf>,
    /// Settings in a file of their own
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// A folder with configuration files of envoyproxy/ratelimit
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
    /// What the service behind takes, such as 500/second: warns of limits that let through more
    #[arg(long, value_name = "RATE")]
    pub(crate) capacity: Option<String>,
    /// Leaves out warnings of this kind; may be given several times
    #[arg(long, value_name = "CODE", value_parser = lint)]
    pub(crate) allow: Vec<Lint>,
    /// A warning is a finding: exit status 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Answers in JSON, an object for each file in a line of its own
    #[arg(long)]
    pub(crate) json: bool,
    /// Says what a warning means, what happens and how to fix it; without CODE, lists them all
    #[arg(
        long,
        value_name = "CODE",
        num_args = 0..=1,
        value_parser = lint,
        conflicts_with_all = ["files", "settings", "envoy_config", "capacity", "allow", "strict", "json"]
    )]
    #[allow(clippy::option_option, reason = "not asked, asked for all, asked for one")]
    pub(crate) explain: Option<Option<Lint>>,
}

fn lint(code: &str) -> Result<Lint, String> {
    // As it is printed: `warning[fixed-window-alone]` is copied with its brackets.
    let bare = code.strip_prefix("warning").unwrap_or(code).trim_matches(['[', ']', ':']);
    Lint::find(bare).ok_or_else(|| match Lint::nearest(bare) {
        Some(meant) => format!("no warning has this code; did you mean `{meant}`?"),
        None => "no warning has this code; `tollgate validate --explain` lists them all".to_owned(),
    })
}
