//! Parses conditions and variables of Limitador.
//!
//! Three generations of the syntax are supported: `foo == bar`, `foo == 'bar'`, and CEL,
//! `descriptors[0]['foo'] == 'bar'`. Of CEL, the terms that a pattern on one entry can express:
//! equality, `startsWith`, `endsWith`, `contains`, and `&&` between such terms.
//!
//! `limitador` handles all other terms.

use crate::output::quoted;

/// The requirement of a condition on one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) entry: Entry,
    /// The entry as a pattern: the value, with `*` for arbitrary text.
    pub(super) pattern: String,
}

/// An entry of a descriptor, by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The index of the descriptor in the request, if the condition states it.
    pub(super) descriptor: Option<u64>,
}

/// Returns all terms of a condition, or why a policy cannot express them.
pub(super) fn terms(condition: &str) -> Result<Vec<Term>, String> {
    parts(condition).into_iter().map(term).collect()
}

/// Returns the entry that a variable names, or why it names no entry.
pub(super) fn variable(text: &str) -> Result<Entry, String> {
    entry(text).ok_or_else(|| format!("the variable {} is an expression", quoted(text)))
}

/// Returns the bytes of a text outside of quotes, with their positions.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut quote = None;
    text.bytes().enumerate().filter(move |(_, byte)| {
        let Some(open) = quote else {
            quote = matches!(byte, b'\'' | b'"').then_some(*byte);
            return quote.is_none();
        };
        if open == *byte {
            quote = None;
        }
        false
    })
}

/// Splits at each `&&` outside of quotes and brackets.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, byte) in unquoted(text) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'&' if depth == 0 && at >= from && text[at..].starts_with("&&") => {
                parts.push(&text[from..at]);
                from = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn term(text: &str) -> Result<Term, String> {
    let text = text.trim();
    let said = |why: &str| Err(format!("{why} in the condition {}", quoted(text)));
    if let Some((left, right)) = operator(text, "==") {
        return match (entry(left), literal(right), entry(right), literal(left)) {
            (Some(entry), Some(value), ..) | (.., Some(entry), Some(value)) => exact(entry, value, text),
            // The oldest syntax: a value without quotes.
            (Some(entry), None, Some(value), _)
                if entry.descriptor.is_none() && value.descriptor.is_none() =>
            {
                exact(entry, &value.key, text)
            }
            _ => said("a policy cannot express this comparison"),
        };
    }
    if operator(text, "!=").is_some() {
        return said("a pattern cannot express a negation");
    }
    for (method, before, after) in [("startsWith", "", "*"), ("endsWith", "*", ""), ("contains", "*", "*")] {
        let call = text.strip_suffix(')').and_then(|it| it.split_once(&format!(".{method}(")));
        if let Some((subject, argument)) = call
            && let (Some(entry), Some(value)) = (entry(subject), literal(argument))
        {
            let Term { entry, pattern } = exact(entry, value, text)?;
            return Ok(Term { entry, pattern: format!("{before}{pattern}{after}") });
        }
    }
    said("a policy cannot express this")
}

fn exact(entry: Entry, value: &str, text: &str) -> Result<Term, String> {
    if value.contains(['*', '\\']) {
        return Err(format!("`*` and `\\` have no literal meaning in a pattern: {}", quoted(text)));
    }
    Ok(Term { entry, pattern: value.to_owned() })
}

/// Splits at the first such operator outside of quotes.
fn operator<'t>(text: &'t str, operator: &str) -> Option<(&'t str, &'t str)> {
    let is_here = |(at, byte): &(usize, u8)| byte.is_ascii() && text[*at..].starts_with(operator);
    let (at, _) = unquoted(text).find(is_here)?;
    Some((text[..at].trim(), text[at + operator.len()..].trim()))
}

/// Returns the text between two quotes of one kind.
fn literal(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|it| matches!(it, '\'' | '"'))?;
    let inner = text.get(1..)?.strip_suffix(quote)?;
    (!inner.contains(quote)).then_some(inner)
}

/// Parses `foo`, `req.method`, `descriptors[0].foo`, `descriptors[0]['req.method']`.
fn entry(text: &str) -> Option<Entry> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix("descriptors[") else {
        return is_word(text, "_.-/").then(|| Entry { key: text.to_owned(), descriptor: None });
    };
    let (number, rest) = rest.split_once(']')?;
    let descriptor = Some(number.trim().parse().ok()?);
    let key = match rest.strip_prefix('.') {
        Some(word) => is_word(word, "_").then_some(word)?,
        None => literal(rest.strip_prefix('[')?.strip_suffix(']')?.trim())?,
    };
    // A pattern is written as `key=value`.
    let sayable = !key.is_empty() && !key.contains(['=', '*']);
    sayable.then(|| Entry { key: key.to_owned(), descriptor })
}

fn is_word(text: &str, besides: &str) -> bool {
    let known = |it: char| it.is_ascii_alphanumeric() || besides.contains(it);
    text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_') && text.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(condition: &str, expected: &[(&str, &str)]) {
        let terms = terms(condition).unwrap_or_else(|why| panic!("{condition}: {why}"));
        let found: Vec<_> = terms.iter().map(|it| (it.entry.key.as_str(), it.pattern.as_str())).collect();
        assert_eq!(found, expected, "{condition}");
    }

    #[test]
    fn every_generation_of_equality_is_read() {
        check("req_method == POST", &[("req_method", "POST")]);
        check("req.method == 'GET'", &[("req.method", "GET")]);
        check("req.method==\"GET\"", &[("req.method", "GET")]);
        check("'GET' == req.method", &[("req.method", "GET")]);
        check("descriptors[0].method == 'GET'", &[("method", "GET")]);
        check("descriptors[0]['req.method'] == \"a && b == c\"", &[("req.method", "a && b == c")]);
        check("descriptors[0].a == '1' && descriptors[0].b == '2'", &[("a", "1"), ("b", "2")]);
        check("descriptors[0].path.startsWith('/v1/')", &[("path", "/v1/*")]);
        check("descriptors[0]['path'].contains('x')", &[("path", "*x*")]);
    }

    #[test]
    fn conditions_that_a_pattern_cannot_express_are_refused() {
        for condition in [
            "",
            "a != 'b'",
            "a == 'b' || a == 'c'",
            "!(a == 'b')",
            "a in ['b']",
            "int(descriptors[0].n) == 3",
            "a == 'b*'",
            "a == 'b\\n'",
            "descriptors[0].a == b",
            "descriptors[0].a == descriptors[0].b",
            "descriptors[0].a.b == 'c'",
            "descriptors[x].a == 'c'",
            "descriptors[0]['a=b'] == 'c'",
            "a == 'b' && ",
            "a.matches('b')",
            "a == '",
            "a =",
            "é == 'é' é",
        ] {
            assert!(terms(condition).is_err(), "{condition}: {:?}", terms(condition));
        }
    }
}
