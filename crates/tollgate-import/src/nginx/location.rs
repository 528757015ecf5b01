//! Converts a `location` to endpoints.
//!
//! Prefixes and exact paths are converted directly. Of regular expressions, those that describe
//! whole segments are converted: `^/users/[^/]+/posts$`, `^/(login|register)$`.
//!
//! nginx selects one of several matching locations; `scope` notes where they overlap.

use super::tree::Directive;
use crate::output::quoted;

/// The maximum number of endpoints of one location. Groups of alternatives multiply.
const MAX_ENDPOINTS: usize = 64;
/// Placeholder for one segment, while the text is built.
const ANY_SEGMENT: char = '\u{1}';
/// Placeholder for any suffix, while the text is built.
const ANY_SUFFIX: char = '\u{2}';

/// Endpoints, and how their coverage differs from the location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) patterns: Vec<String>,
    pub(super) differs: Vec<String>,
    /// Whether the patterns cover paths for which nginx does not use the location.
    pub(super) is_wider: bool,
}

/// How nginx selects a location, which decides between several that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// `location = /path`.
    Exact,
    /// `location ^~ /path`: regular expressions are not tried if it is the longest prefix.
    FinalPrefix,
    /// `location ~ expression`.
    Expression,
    /// `location /path`, and a server without locations.
    Prefix,
}

impl Selection {
    /// Returns how nginx selects a location.
    pub(super) fn of(location: &Directive) -> Self {
        match location.argument(0) {
            Some("=") => Self::Exact,
            Some("^~") => Self::FinalPrefix,
            Some("~" | "~*") => Self::Expression,
            _ => Self::Prefix,
        }
    }

    /// Whether nginx prefers this location to one that covers all of its paths and more. Of two
    /// expressions, the first in the file is preferred; such pairs are not compared.
    pub(super) const fn is_preferred_to(self, outer: Self) -> bool {
        match self {
            Self::Exact | Self::FinalPrefix => true,
            Self::Expression => matches!(outer, Self::Prefix),
            Self::Prefix => matches!(outer, Self::Prefix | Self::FinalPrefix),
        }
    }
}

/// Returns the title of a location in messages: `location ~ \.php$`.
pub(super) fn title(location: &Directive) -> String {
    let words: Vec<_> = location.arguments.iter().map(|(word, _)| word.as_str()).collect();
    format!("location {}", words.join(" "))
}

/// Returns the endpoints of a location, or why a policy cannot express them.
pub(super) fn endpoints(location: &Directive) -> Result<Endpoints, String> {
    match (location.argument(0), location.argument(1)) {
        (Some("="), Some(path)) => {
            Ok(Endpoints { patterns: vec![literal(path)?.to_owned()], ..Endpoints::default() })
        }
        (Some("~"), Some(regex)) => expression(regex),
        (Some("~*"), Some(regex)) => {
            let mut found = expression(regex)?;
            found.differs.push("nginx ignores case here, Tollgate does not.".to_owned());
            Ok(found)
        }
        (Some(name), None) if name.starts_with('@') => {
            Err("a named location is reached from inside nginx only".to_owned())
        }
        (Some("^~"), Some(path)) | (Some(path), None) => prefix(path),
        _ => Err("there is no path".to_owned()),
    }
}

/// Checks that a path contains no characters with a meaning in endpoint patterns.
fn literal(path: &str) -> Result<&str, String> {
    if path.starts_with('/') && !path.contains(['*', '{', '}', '?', '#', '%', '$']) {
        return Ok(path);
    }
    Err(format!("the path {} cannot be written as an endpoint", quoted(path)))
}

fn prefix(path: &str) -> Result<Endpoints, String> {
    let whole = literal(path)?;
    let Some(folder) = whole.strip_suffix('/') else {
        if !whole.ends_with(|it: char| it.is_ascii_alphanumeric()) {
            return Err(format!(
                "{} is a prefix of names, and endpoints consist of whole segments",
                quoted(path)
            ));
        }
        let differs = format!(
            "nginx also uses this location for {}, which has the same prefix; here it covers {} and the paths below.",
            quoted(&format!("{whole}-and-more")),
            quoted(whole)
        );
        let patterns = vec![format!("{whole}/**")];
        return Ok(Endpoints { patterns, differs: vec![differs], is_wider: false });
    };
    Ok(Endpoints { patterns: vec![format!("{folder}/**")], ..Endpoints::default() })
}

/// Returns the endpoints that a regular expression describes.
fn expression(regex: &str) -> Result<Endpoints, String> {
    let too_much = || format!("an endpoint cannot express the regular expression {}", quoted(regex));
    let body = regex.strip_prefix('^').ok_or_else(too_much)?;
    let mut narrower = false;
    let mut texts = vec![String::new()];
    let mut rest = body;
    let mut ended = false;
    while !rest.is_empty() {
        let (choices, behind) = piece(rest, &mut narrower).ok_or_else(too_much)?;
        if ended || texts.len() * choices.len() > MAX_ENDPOINTS {
            return Err(too_much());
        }
        rest = behind;
        ended = choices.iter().any(|it| it.contains('$'));
        texts = texts.iter().flat_map(|text| choices.iter().map(move |it| format!("{text}{it}"))).collect();
    }
    let mut found = Endpoints::default();
    for text in texts {
        let one = pattern(&text, ended).ok_or_else(too_much)?;
        found.patterns.extend(one.patterns);
        found.differs.extend(one.differs);
    }
    found.differs.dedup();
    found.is_wider = narrower;
    if narrower {
        found.differs.push(format!("`*` matches any segment; nginx requires {}.", quoted(regex)));
    }
    Ok(found)
}

/// Parses one element of an expression. Returns its alternatives and the rest. `$` marks the end.
fn piece<'t>(text: &'t str, narrower: &mut bool) -> Option<(Vec<String>, &'t str)> {
    for (end, meaning) in [("/?$", "$"), ("(/|$)", "/\u{2}$"), ("(?:/|$)", "/\u{2}$"), ("$", "$")] {
        if text == end {
            return Some((vec![meaning.to_owned()], ""));
        }
    }
    for (segment, exact) in [("[^/]+", true), ("[^/]*", true), ("\\d+", false), ("\\w+", false)] {
        for form in [segment.to_owned(), format!("({segment})")] {
            if let Some(rest) = text.strip_prefix(form.as_str()) {
                *narrower |= !exact;
                return Some((vec![ANY_SEGMENT.to_string()], rest));
            }
        }
    }
    if matches!(text, ".*" | ".+" | ".*$" | ".+$" | "(.*)" | "(.*)$" | "(.+)" | "(.+)$") {
        return Some((vec![format!("{ANY_SUFFIX}$")], ""));
    }
    let first = text.chars().next()?;
    let behind = &text[first.len_utf8()..];
    match first {
        '[' => {
            let (class, rest) = behind.split_once(']')?;
            let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
            *narrower = true;
            (class.chars().all(plain) && !class.is_empty())
                .then_some((vec![ANY_SEGMENT.to_string()], rest.strip_prefix('+')?))
        }
        '(' => {
            let behind = behind.strip_prefix("?:").unwrap_or(behind);
            let (group, rest) = behind.split_once(')')?;
            let choices: Option<Vec<_>> = group.split('|').map(plain_text).collect();
            (!rest.starts_with(['?', '*', '+', '{'])).then_some((choices?, rest))
        }
        '\\' => {
            let char = behind.chars().next().filter(char::is_ascii_punctuation)?;
            let rest = &behind[char.len_utf8()..];
            (!rest.starts_with(['?', '*', '+', '{'])).then_some((vec![char.to_string()], rest))
        }
        '.' | '*' | '+' | '?' | '{' | '}' | ')' | ']' | '|' | '^' | '$' => None,
        _ if behind.starts_with(['?', '*', '+', '{']) => None,
        _ => Some((vec![first.to_string()], behind)),
    }
}

/// Returns a text without special characters, with its escapes resolved.
fn plain_text(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => out.push(chars.next().filter(char::is_ascii_punctuation)?),
            '.' | '*' | '+' | '?' | '{' | '}' | '(' | '[' | ']' | '^' | '$' => return None,
            _ => out.push(char),
        }
    }
    Some(out)
}

/// Converts the described text to an endpoint; without an end it is a prefix.
fn pattern(text: &str, ended: bool) -> Option<Endpoints> {
    let text = text.trim_end_matches('$');
    if let Some(folder) = text.strip_suffix(ANY_SUFFIX) {
        let folder = segments(folder.strip_suffix('/')?)?;
        return Some(Endpoints { patterns: vec![format!("{folder}/**")], ..Endpoints::default() });
    }
    let text = segments(text)?;
    if ended {
        return text.starts_with('/').then(|| Endpoints { patterns: vec![text], ..Endpoints::default() });
    }
    if let Some(folder) = text.strip_suffix("/*") {
        // `[^/]+` without an end: at least one segment, and any suffix.
        return Some(Endpoints { patterns: vec![format!("{folder}/*/**")], ..Endpoints::default() });
    }
    let folder = text.replace('*', "x");
    let mut found = prefix(&folder).ok()?;
    found.patterns = vec![format!("{}/**", text.trim_end_matches('/'))];
    Some(found)
}

/// Converts each segment to a literal or a wildcard.
fn segments(text: &str) -> Option<String> {
    let one = ANY_SEGMENT.to_string();
    let written = text.split('/').map(|segment| match segment {
        _ if segment == one => Some("*"),
        _ if segment.contains([ANY_SEGMENT, ANY_SUFFIX, '*', '{', '}', '?', '#', '%', '$']) => None,
        _ => Some(segment),
    });
    Some(written.collect::<Option<Vec<_>>>()?.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_document::Place;

    fn found(words: &str) -> Result<Endpoints, String> {
        let place = Place { source: 0, line: 1, column: 1, width: 1 };
        let arguments = words.split(' ').map(|it| (it.to_owned(), place)).collect();
        endpoints(&Directive { name: "location".into(), place, arguments, block: Vec::new() })
    }

    #[test]
    fn locations_become_endpoints() {
        for (location, expected) in [
            ("/", "/**"),
            ("/api/", "/api/**"),
            ("/api", "/api/**"),
            ("^~ /static/", "/static/**"),
            ("= /login", "/login"),
            ("~ ^/api/", "/api/**"),
            ("~ ^/login$", "/login"),
            ("~ ^/login/?$", "/login"),
            ("~ ^/(login|sign-up)$", "/login /sign-up"),
            ("~ ^/(?:a|b)/x", "/a/x/** /b/x/**"),
            ("~ ^/users/[^/]+/posts$", "/users/*/posts"),
            ("~ ^/users/(\\d+)$", "/users/*"),
            ("~ ^/v[0-9]+/x$", ""),
            ("~ ^/wp-login\\.php$", "/wp-login.php"),
            ("~* ^/api/.*$", "/api/**"),
            ("~ ^/api(/|$)", "/api/**"),
            ("~ ^/u/[a-z0-9-]+/p$", "/u/*/p"),
            ("~ ^/u/[^/]+", "/u/*/**"),
            ("~ \\.php$", ""),
            ("~ ^/a.b$", ""),
            ("~ ^/ab?$", ""),
            ("~ ^/(a|b)+$", ""),
            ("~ ^/((a|b)|c)$", ""),
            ("~ ^$", ""),
            ("@named", ""),
            ("/a*", ""),
            ("/down-", ""),
            ("relative", ""),
            ("~ ^/{", ""),
            ("~ ^/a$b", ""),
        ] {
            let patterns = found(location).map(|it| it.patterns.join(" ")).unwrap_or_default();
            assert_eq!(patterns, expected, "{location}: {:?}", found(location));
        }
    }

    #[test]
    fn differences_in_coverage_are_noted() {
        for location in ["/api", "~* ^/api/", "~ ^/users/\\d+$", "~ ^/api"] {
            assert!(!found(location).unwrap().differs.is_empty(), "{location}");
        }
        for location in ["/api/", "= /api", "~ ^/api/", "~ ^/users/[^/]+$"] {
            assert!(found(location).unwrap().differs.is_empty(), "{location}");
        }
    }
}
