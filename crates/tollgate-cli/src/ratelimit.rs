//! `tollgate ratelimit`: serves in place of envoyproxy/ratelimit.
//!
//! The binary does the same if its name is `ratelimit`, as in an image that replaces that of
//! envoyproxy/ratelimit. The variables are in `tollgate_daemon`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use tollgate_daemon::{Environment, Failure, Inputs, RatelimitVariables};

use crate::arguments::Ratelimit;
use crate::serve;

const NAME: &str = "ratelimit";

/// Returns the command line; with the command, if the binary is called `ratelimit`.
pub(crate) fn command_line(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    let name = arguments.first().and_then(|it| Path::new(it).file_name());
    if name.is_some_and(|name| name == NAME) {
        arguments.insert(1, NAME.into());
    }
    arguments
}

pub(crate) fn run(arguments: &Ratelimit, environment: &Environment) -> Result<ExitCode, Failure> {
    let inputs = Inputs::for_ratelimit(&RatelimitVariables::read(), environment)?;
    serve::start(inputs, arguments.ready_file.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_binary_is_a_command() {
        for (typed, expected) in [
            (&["/bin/ratelimit"][..], &["/bin/ratelimit", "ratelimit"][..]),
            (&["ratelimit", "--help"], &["ratelimit", "ratelimit", "--help"]),
            (&["tollgate", "serve"], &["tollgate", "serve"]),
            (&[], &[]),
        ] {
            assert_eq!(command_line(typed.iter().map(OsString::from)), expected);
        }
    }
}
