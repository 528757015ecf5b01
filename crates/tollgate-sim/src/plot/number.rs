//! Number formats that charts, the page and text output share.

/// Formats a count: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a part of `whole` as a percentage: `1.5 %`. A part above zero is never shown as 0 %, and a part below the
/// whole never as 100 %.
///
/// ```
/// # use tollgate_sim::plot::number::share;
/// assert_eq!(share(153, 10_000), "1.5 %");
/// assert_eq!(share(1, 1_000_000), "< 0.01 %");
/// assert_eq!(share(0, 0), "0 %");
/// ```
#[allow(clippy::cast_precision_loss, reason = "at most four digits are shown")]
pub fn share(part: u64, whole: u64) -> String {
    if part == 0 {
        return "0 %".to_owned();
    }
    if part >= whole {
        return "100 %".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    match percent {
        ..0.01 => "< 0.01 %".to_owned(),
        ..0.995 => format!("{percent:.2} %"),
        ..99.9 => format!("{:.1} %", percent.min(99.9)),
        _ => "> 99.9 %".to_owned(),
    }
}

/// Formats a count with a noun: `1 client`, `2 clients`.
pub fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a number in few characters: `0.25`, `1,200`, `1.25M`. `step` is the distance to the next number and
/// determines the precision.
pub(crate) fn short(number: f64, step: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")];
    if !number.is_finite() {
        return "–".to_owned();
    }
    let size = number.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-6) {
        return format!("{number:.0e}");
    }
    if size >= 100_000.0
        && let Some((unit, letter)) = UNITS.iter().find(|(unit, _)| size >= *unit)
    {
        return format!("{}{letter}", digits(number / unit, step / unit, 3));
    }
    let text = digits(number, step, 8);
    match text.trim_start_matches('-').parse::<u64>() {
        Ok(whole) if text.starts_with('-') => format!("-{}", count(whole)),
        Ok(whole) => count(whole),
        Err(_) => text,
    }
}

/// Formats a number with as many decimals as distinguish it from a number that is `step` away, at most `most`.
fn digits(number: f64, step: f64, most: usize) -> String {
    let mut text = String::new();
    for decimals in 0..=most {
        text = format!("{number:.decimals$}");
        let shown: f64 = text.parse().unwrap_or(number);
        if (shown - number).abs() <= step.abs() * 0.01 {
            break;
        }
    }
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn a_part_is_never_shown_as_zero_or_as_the_whole() {
        for (part, whole, text) in [
            (0, 7, "0 %"),
            (7, 7, "100 %"),
            (1, u64::MAX, "< 0.01 %"),
            (99_999, 100_000, "> 99.9 %"),
            (12, 1000, "1.2 %"),
            (5, 10_000, "0.05 %"),
            (995, 1000, "99.5 %"),
            (4, 10, "40.0 %"),
            (u64::MAX - 1, u64::MAX, "> 99.9 %"),
        ] {
            assert_eq!(share(part, whole), text, "{part} of {whole}");
        }
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        for (number, step, text) in [
            (0.25, 0.05, "0.25"),
            (0.300_000_000_000_000_04, 0.1, "0.3"),
            (1200.0, 100.0, "1,200"),
            (-1200.0, 100.0, "-1,200"),
            (1_250_000.0, 50_000.0, "1.25M"),
            (200_000.0, 100_000.0, "200K"),
            (1e300, 1e299, "1e300"),
            (-0.0, 1.0, "0"),
            (f64::NAN, 1.0, "–"),
        ] {
            assert_eq!(short(number, step), text);
        }
    }
}
