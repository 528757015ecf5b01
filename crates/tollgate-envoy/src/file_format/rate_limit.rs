//! The `rate_limit` section: the amount and the name of a limit.

use tollgate::policy::Lint;
use tollgate_document::{Located, Node, Place, Problems, nearest};

use crate::section::{Fields, RATE_LIMIT, REPLACES};
use crate::unit::Unit;

/// The amount and the name of a limit.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// The amount.
    pub allowed: Allowance,
    /// The name that `replaces` of other limits refers to.
    pub name: Option<String>,
    /// The names of the limits that this limit replaces if both apply to a request.
    pub replaces: Vec<Located<String>>,
}

/// The amount that a limit grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// No limit; nothing is counted.
    Unlimited,
    /// This many requests per unit of time; zero admits nothing.
    Requests {
        /// The number of requests.
        per_unit: u32,
        /// The unit of time.
        unit: Unit,
    },
}

/// Reads the section at `node`. `at` is the place of its name.
pub(super) fn read(node: &Node, at: Place, problems: &mut Problems) -> Option<RateLimit> {
    let fields = RATE_LIMIT.read(node, problems)?;
    let allowed = match fields.flag("unlimited", problems) {
        Some(true) => allows_all(&fields, problems),
        Some(false) => requests(&fields, at, problems),
        None => None,
    };
    let name = fields.text("name", problems).map(|name| name.value);
    let replaces = replaces(&fields, name.as_deref(), problems);
    Some(RateLimit { allowed: allowed?, name, replaces })
}

/// Reads `unlimited: true`, which excludes other amounts.
fn allows_all(fields: &Fields<'_>, problems: &mut Problems) -> Option<Allowance> {
    if fields.text("unit", problems).is_some() {
        problems
            .error(fields.place_of("unit"), "`unlimited` and `unit` cannot be combined")
            .label("all requests pass, in any time")
            .related(fields.place_of("unlimited"), "set here")
            .help("remove one of them");
        return None;
    }
    if fields.entry("requests_per_unit").is_some() {
        problems
            .warning(
                Lint::EnvoyIdleWord,
                fields.place_of("requests_per_unit"),
                "`requests_per_unit` has no effect beside `unlimited`",
            )
            .related(fields.place_of("unlimited"), "all requests pass");
    }
    Some(Allowance::Unlimited)
}

fn requests(fields: &Fields<'_>, at: Place, problems: &mut Problems) -> Option<Allowance> {
    let known = || Unit::ALL.into_iter().map(Unit::name);
    let all = "a unit is second, minute, hour, day, week, month or year";
    let written = fields.get("unit");
    let word = fields.text("unit", problems);
    let unit = word.as_ref().and_then(|word| Unit::named(&word.value));
    match (&word, written) {
        (Some(word), Some(node)) if unit.is_none() => {
            let problem = problems.error(word.place, format!("unknown unit {}", node.describe()));
            if let Some(meant) = nearest(&word.value, known()) {
                problem.label(format!("did you mean `{meant}`?"));
            }
            problem.help(all);
        }
        (None, _) if fields.lacks("unit") => {
            problems.error(at, "this `rate_limit` has no `unit`").help(all);
        }
        _ => {}
    }
    let Some(node) = fields.get("requests_per_unit") else {
        if fields.lacks("requests_per_unit") {
            problems
                .warning(
                    Lint::EnvoyAdmitsNothing,
                    at,
                    "without `requests_per_unit`, this limit admits nothing",
                )
                .help("if that is meant, write `requests_per_unit: 0`");
        }
        return Some(Allowance::Requests { per_unit: 0, unit: unit? });
    };
    if node
        .text()
        .is_some_and(|it| it.len() > 1 && it.starts_with('0') && it.bytes().all(|it| it.is_ascii_digit()))
    {
        problems
            .error(node.place, "`requests_per_unit` begins with a zero")
            .label("some YAML readers parse this as an octal number")
            .help("write it without the zero");
        return None;
    }
    if let Some(per_unit) = node.text().and_then(otherwise_written) {
        return Some(Allowance::Requests { per_unit, unit: unit? });
    }
    let number = node.whole("`requests_per_unit`", 0..=u64::from(u32::MAX), problems)?;
    Some(Allowance::Requests { per_unit: u32::try_from(number.value).unwrap_or(u32::MAX), unit: unit? })
}

/// Parses the other number formats of YAML 1.1: `0x10`, `0b101`, `1e3`.
fn otherwise_written(text: &str) -> Option<u32> {
    // `from_str_radix` accepts a sign after the prefix, so signs are refused here.
    let digits =
        |prefix| text.strip_prefix(prefix).filter(|it| it.starts_with(|it: char| it.is_ascii_hexdigit()));
    if let Some(hexadecimal) = digits("0x") {
        return u32::from_str_radix(hexadecimal, 16).ok();
    }
    if let Some(binary) = digits("0b") {
        return u32::from_str_radix(binary, 2).ok();
    }
    let (mantissa, exponent) = text.split_once(['e', 'E'])?;
    let exponent: u32 = exponent.trim_start_matches('+').parse().ok()?;
    // The number must be whole without rounding: 1.5e3 is, 1.5 is not.
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = exponent.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let is_digits = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    let digits = format!("{whole}{fraction}");
    let number: u32 = digits.parse().ok().filter(|_| is_digits(&digits) && !whole.is_empty())?;
    number.checked_mul(10_u32.checked_pow(zeros)?)
}

fn replaces(fields: &Fields<'_>, own: Option<&str>, problems: &mut Problems) -> Vec<Located<String>> {
    let mut all = Vec::new();
    for node in fields.list("replaces", "entries, each with the `name` of a limit", problems) {
        if node.text().is_some() {
            problems
                .error(
                    node.place,
                    format!(
                        "an entry of `replaces` is a map of `name: value` lines, not {}",
                        node.describe()
                    ),
                )
                .label("write `name: ` before it");
            continue;
        }
        let Some(entry) = REPLACES.read(node, problems) else { continue };
        match entry.text("name", problems) {
            Some(name) if Some(name.value.as_str()) == own => {
                problems
                    .error(name.place, "a limit cannot replace itself")
                    .label("this is its own `name`")
                    .related(fields.place_of("name"), "given here");
            }
            Some(name) => all.push(name),
            None if entry.lacks("name") => {
                problems
                    .error(entry.place_of("name"), "an entry of `replaces` names no limit")
                    .help("write `- name: NAME`, with the `name` of the limit that is replaced");
            }
            None => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_all_ways_that_are_whole() {
        for (text, number) in [
            ("0x10", Some(16)),
            ("0xffffffff", Some(u32::MAX)),
            ("0b101", Some(5)),
            ("1e3", Some(1_000)),
            ("1E+3", Some(1_000)),
            ("1.5e3", Some(1_500)),
            ("4e9", Some(4_000_000_000)),
            ("5e9", None),
            ("1.5e0", None),
            ("1e-3", None),
            ("0x100000000", None),
            ("0x+5", None),
            ("-1e3", None),
            ("+1e3", None),
            ("e3", None),
            ("1e99999999999", None),
            ("10", None),
        ] {
            assert_eq!(otherwise_written(text), number, "{text}");
        }
    }
}
