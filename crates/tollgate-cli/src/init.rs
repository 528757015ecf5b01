//! `tollgate init`: writes a commented policy to begin with.
//!
//! On a terminal it asks for the purpose, unless `--for` names it. An existing file stays as it is.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;

use tollgate_daemon::Failure;
use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;

use crate::arguments::{Init, Purpose};
use crate::output;

/// Each purpose, the number that is typed for it, and its description in the question.
const CHOICES: [(&str, Purpose, &str); 4] = [
    ("1", Purpose::Gateway, "gateway   Tollgate in front of a service"),
    ("2", Purpose::Envoy, "envoy     Envoy asks over gRPC"),
    ("3", Purpose::Nginx, "nginx     nginx, Caddy, HAProxy or Traefik ask over HTTP"),
    ("4", Purpose::Library, "library   a service in Rust embeds it"),
];

/// The maximum length of a typed answer.
const MAX_ANSWER_BYTES: u64 = 256;

pub(crate) fn run(arguments: &Init) -> Result<ExitCode, Failure> {
    let file = &arguments.file;
    if file.exists() {
        // Before the question, so that the answer is not in vain.
        return Err(output::exists(file));
    }
    let purpose = match arguments.purpose {
        Some(purpose) => purpose,
        None if io::stdin().is_terminal() => question()?,
        None => {
            return Err(Failure::with_help(
                "the purpose of the policy is missing",
                "tollgate init --for gateway; or envoy, nginx, library",
            ));
        }
    };
    output::new_file(file, purpose.policy())?;
    let name = shown(file);
    let mut said = format!("{name} is written. Next:\n  tollgate validate {name}\n");
    if purpose != Purpose::Library {
        let _ = writeln!(said, "  tollgate serve --config {name}");
    }
    output::text(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks for the purpose, until the answer is one.
fn question() -> Result<Purpose, Failure> {
    let mut said = "What is the policy for?\n".to_owned();
    for (number, _, words) in CHOICES {
        let _ = writeln!(said, "  {number}  {words}");
    }
    let failed = |error| Failure::io("cannot read the answer", &error, Attempt::Other);
    loop {
        output::text(&format!("{said}1 to 4 [1]: "))?;
        let mut answer = String::new();
        let read = io::Read::take(io::stdin().lock(), MAX_ANSWER_BYTES).read_line(&mut answer);
        if read.map_err(failed)? == 0 {
            return Err(Failure::new("no answer; nothing was written"));
        }
        let answer = if answer.trim().is_empty() { "1" } else { answer.trim() };
        let is_it = |purpose: Purpose| answer.eq_ignore_ascii_case(purpose.word());
        let chosen = CHOICES.into_iter().find(|(number, purpose, _)| answer == *number || is_it(*purpose));
        if let Some((_, purpose, _)) = chosen {
            return Ok(purpose);
        }
        "Please answer with a number.\n".clone_into(&mut said);
    }
}

impl Purpose {
    const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Envoy => "envoy",
            Self::Nginx => "nginx",
            Self::Library => "library",
        }
    }

    const fn policy(self) -> &'static str {
        match self {
            Self::Gateway => include_str!("init/gateway.yaml"),
            Self::Envoy => include_str!("init/envoy.yaml"),
            Self::Nginx => include_str!("init/nginx.yaml"),
            Self::Library => include_str!("init/library.yaml"),
        }
    }
}
