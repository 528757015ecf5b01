//! Arguments of `validate`.

use std::path::PathBuf;

use clap::Args;
use tollgate::policy::Lint;

/// Checks files, and warns of likely mistakes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate validate policy.yaml
  tollgate validate --strict policies/*.yaml
  tollgate validate policy.yaml --settings settings.yaml --capacity 500/second
  tollgate validate --envoy-config /etc/ratelimit/config
  tollgate validate --explain fixed-window-alone

`expect: CODE` in the limit, or at the top of the file, accepts a warning.

Exit status 0 if all files can be served, with or without warnings; 1 with --strict and a
warning; 2 if a file cannot be served.")]
pub(crate) struct Validate {
    /// Policies, which may include settings; each is checked separately
    #[arg(value_name = "FILE", required_unless_present_any = ["envoy_config", "explain"])]
    pub(crate) files: Vec<PathBuf>,
    /// A separate file of settings
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// A directory of envoyproxy/ratelimit configuration files
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
    /// The capacity of the upstream, such as 500/second: warns of limits that admit more
    #[arg(long, value_name = "RATE")]
    pub(crate) capacity: Option<String>,
    /// Omits warnings of this kind; may be given several times
    #[arg(long, value_name = "CODE", value_parser = lint)]
    pub(crate) allow: Vec<Lint>,
    /// Treats a warning as a finding: exit status 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prints JSON, one object per line for each file
    #[arg(long)]
    pub(crate) json: bool,
    /// Explains a warning: its meaning, effect and fix; without CODE, lists all warnings
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
    // Accepts the printed form `warning[fixed-window-alone]`, which is copied with its brackets.
    let bare = code.strip_prefix("warning").unwrap_or(code).trim_matches(['[', ']', ':']);
    Lint::find(bare).ok_or_else(|| match Lint::nearest(bare) {
        Some(meant) => format!("no warning has this code; did you mean `{meant}`?"),
        None => "no warning has this code; `tollgate validate --explain` lists them all".to_owned(),
    })
}
