//! Negotiates the body format of a refusal from `Accept`.
//!
//! The default is problem JSON. `application/json` selects the same document with that media type,
//! and a preference for text (as of browsers) selects a sentence. A caller that accepts none of
//! these formats still gets problem JSON: a 406 would hide the reason of the refusal.

use crate::header_lines::HeaderLines;

/// A body format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `application/problem+json`.
    Problem,
    /// The same document as `application/json`.
    Json,
    /// A sentence as `text/plain`.
    Text,
}

/// The formats; at equal preference the earlier one wins.
const FORMS: [Form; 3] = [Form::Problem, Form::Json, Form::Text];

/// The number of media ranges that are read; further ranges are ignored.
const MAX_MEDIA_RANGES: usize = 32;

impl Form {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Problem => "application/problem+json",
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
        }
    }

    /// Returns the format with the highest weight; among equals, the most precisely requested one.
    pub(super) fn preferred(headers: &impl HeaderLines) -> Self {
        let mut lines = headers.lines("accept");
        // Most programs send no preference.
        match (lines.next(), lines.next()) {
            (None, _) | (Some(b"*/*"), None) => Self::Problem,
            _ => Self::preferred_by_ranges(headers),
        }
    }

    fn preferred_by_ranges(headers: &impl HeaderLines) -> Self {
        let mut best = [None::<Preference>; FORMS.len()];
        let lines = headers.lines("accept").filter_map(visible_text);
        for range in lines.flat_map(|line| line.split(',')).take(MAX_MEDIA_RANGES) {
            let (range, weight) = weighted(range);
            for (form, best) in FORMS.iter().zip(&mut best) {
                // The most precise range that covers a format determines its weight (RFC 9110,
                // 12.5.1).
                if let Some(precision) = form.covered_by(range)
                    && best.is_none_or(|best| best.precision < precision)
                {
                    *best = Some(Preference { weight, precision });
                }
            }
        }
        let mut preferred = (Self::Problem, Preference { weight: 0, precision: 0 });
        for (form, wish) in FORMS.into_iter().zip(best) {
            if let Some(wish) = wish.filter(|wish| wish.weight > 0 && *wish > preferred.1) {
                preferred = (form, wish);
            }
        }
        preferred.0
    }

    /// Returns how precisely a media range matches this format; `None` if it does not match.
    fn covered_by(self, range: &str) -> Option<u8> {
        let is = |name: &str| range.eq_ignore_ascii_case(name);
        match self {
            Self::Problem if is("application/problem+json") => Some(3),
            Self::Json if is("application/json") => Some(3),
            Self::Text if is("text/plain") || is("text/html") => Some(3),
            Self::Problem | Self::Json if is("application/*") => Some(2),
            Self::Text if is("text/*") => Some(2),
            _ if is("*/*") => Some(1),
            _ => None,
        }
    }
}

/// Returns a line as text; `None` if it has characters other than visible ASCII, spaces and tabs.
pub(super) fn visible_text(line: &[u8]) -> Option<&str> {
    let is_visible = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    std::str::from_utf8(line).ok().filter(|_| line.iter().all(is_visible))
}

/// The preference for a format: by weight, then by precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    weight: u16,
    precision: u8,
}

/// Splits a media range from its weight in thousandths. An invalid weight is ignored.
fn weighted(range: &str) -> (&str, u16) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.and_then(thousandths).unwrap_or(1_000))
}

/// Parses a weight such as `0`, `0.5` or `1.000`: at most three decimals, at most one.
fn thousandths(weight: &str) -> Option<u16> {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "0" => Some(fraction),
        "1" if fraction == 0 => Some(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::ACCEPT;

    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Form) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        assert_eq!(Form::preferred(&headers), expected, "{accept}");
        assert_eq!(Form::preferred_by_ranges(&headers), expected, "{accept}");
    }

    #[test]
    fn callers_get_the_format_that_they_name() {
        check("*/*", Form::Problem);
        check("application/problem+json", Form::Problem);
        check("application/json", Form::Json);
        check("application/json, text/plain, */*", Form::Json);
        check("application/problem+json, application/json", Form::Problem);
        check("Application/JSON; charset=utf-8", Form::Json);
        check("application/*", Form::Problem);
        check("text/plain", Form::Text);
        check("text/*, application/json;q=0.9", Form::Text);
        check("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form::Text);
        check("text/html;q=0.5, application/json;q=0.7", Form::Json);
        check("application/json;q=0, */*", Form::Problem);
    }

    #[test]
    fn malformed_and_unsupported_media_ranges_get_problem_json() {
        assert_eq!(Form::preferred(&HeaderMap::new()), Form::Problem);
        assert_eq!(Form::preferred_by_ranges(&HeaderMap::new()), Form::Problem);
        let mut two_lines = HeaderMap::new();
        two_lines.append(ACCEPT, "*/*".parse().unwrap());
        two_lines.append(ACCEPT, "text/plain".parse().unwrap());
        assert_eq!(Form::preferred(&two_lines), Form::Text);
        check("image/png", Form::Problem);
        check("", Form::Problem);
        check(",,;;q=,", Form::Problem);
        check("text/plain;q=0", Form::Problem);
        check(&"image/png,".repeat(5_000), Form::Problem);
        check("application/json;q=9.9999", Form::Json);
    }
}
