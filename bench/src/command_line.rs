//! The command line of a benchmark: pairs of option and value, and the exit code.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

/// Runs a benchmark with the command line arguments, or prints its usage.
pub fn run(name: &str, usage: &str, benchmark: impl FnOnce(&[String]) -> Result<(), String>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| it == "--help") {
        println!("{usage}");
        return ExitCode::SUCCESS;
    }
    match benchmark(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Calls a function with each option and its value. It returns `None` for an unknown option or an invalid value.
pub fn read(
    arguments: &[String],
    usage: &str,
    mut take: impl FnMut(&str, &str) -> Option<()>,
) -> Result<(), String> {
    let mut words = arguments.iter();
    while let Some(option) = words.next() {
        let value = words.next().ok_or(usage)?;
        take(option, value).ok_or_else(|| format!("`{option} {value}`\n{usage}"))?;
    }
    Ok(())
}

/// Parses a number within these bounds.
pub fn number<T: FromStr + PartialOrd>(value: &str, bounds: RangeInclusive<T>) -> Option<T> {
    value.parse().ok().filter(|it| bounds.contains(it))
}

/// Splits a list of names at commas.
pub fn names(value: &str) -> Vec<String> {
    value.split(',').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_or_an_invalid_value_shows_the_usage() {
        let typed = |words: &[&str]| -> Result<u64, String> {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let mut seconds = 1;
            read(&words, "usage", |option, value| match option {
                "--seconds" => number(value, 1..=9).map(|it| seconds = it),
                _ => None,
            })
            .map(|()| seconds)
        };
        assert_eq!(typed(&[]), Ok(1));
        assert_eq!(typed(&["--seconds", "2", "--seconds", "9"]), Ok(9));
        assert_eq!(typed(&["--seconds"]), Err("usage".into()));
        assert_eq!(typed(&["--seconds", "10"]), Err("`--seconds 10`\nusage".into()));
        assert_eq!(typed(&["--hours", "1"]), Err("`--hours 1`\nusage".into()));
    }
}
