//! Patterns in which each `*` stands for zero or more characters.
//!
//! The literals between the stars are searched from left to right, each at its first
//! occurrence, so matching takes time linear in the length of the value, even for hostile
//! values.
//!
//! Invariant: a value fits exactly if some assignment of the stars yields it. Tested by
//! `tests::the_matcher_agrees_with_trying_every_way`.

use std::fmt;

/// A pattern with at least one star.
///
/// ```
/// # use tollgate_policy::Glob;
/// let export = Glob::parse("/v1/*/export").expect("it has a star");
/// assert!(export.fits("/v1/shop/export"));
/// assert!(!export.fits("/v2/shop/export"));
/// assert_eq!(Glob::parse("/v1/export"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    /// The literal before the first star.
    prefix: Box<str>,
    /// The literals between stars, in order. All are non-empty.
    middle: Vec<Box<str>>,
    /// The literal after the last star.
    suffix: Box<str>,
}

impl Glob {
    /// Parses a pattern. Returns `None` if the text has no star.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(Into::into).collect();
        Some(Self { prefix: prefix.into(), middle, suffix: suffix.into() })
    }

    /// Whether a value fits the pattern, in time linear in its length.
    pub fn fits(&self, value: &str) -> bool {
        let rest = value.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        let Some(mut rest) = rest else { return false };
        for part in &self.middle {
            // Linear in `rest` for every `part`: the standard library uses two-way search.
            let Some(at) = rest.find(&**part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// Returns the literal that every fitting value begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        self.middle.iter().try_for_each(|part| write!(f, "*{part}"))?;
        write!(f, "*{}", self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries every assignment of the stars.
    fn tried(pattern: &[char], value: &[char]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some(('*', rest)) => (0..=value.len()).any(|taken| tried(rest, &value[taken..])),
            Some((first, rest)) => value.first() == Some(first) && tried(rest, &value[1..]),
        }
    }

    #[test]
    fn stars_stand_for_zero_or_more_characters_anywhere() {
        for (pattern, fitting, others) in [
            ("/v1/*", &["/v1/", "/v1/a/b"][..], &["/v1", "/v2/", "x/v1/a"][..]),
            ("*.png", &[".png", "a.png", "a.png.png"], &["a.pngx", "png"]),
            ("a*a", &["aa", "aba", "aaa"], &["a", "ab", "ba"]),
            ("*b*", &["b", "abc"], &["", "ac"]),
            ("a**b*c", &["abc", "axbxc", "abbc"], &["acb", "ac"]),
            ("é*€", &["é€", "éx€"], &["é", "e€"]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            for (values, expected) in [(fitting, true), (others, false)] {
                for value in values {
                    assert_eq!(glob.fits(value), expected, "{pattern} and {value}");
                }
            }
        }
        assert_eq!(Glob::parse("gold"), None);
    }

    #[test]
    fn the_matcher_agrees_with_trying_every_way() {
        // A small generator with a fixed seed yields the same texts on every run.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut both = [0_u32; 2];
        for round in 0..50_000 {
            let mut text = |letters: &[char], most: u64| -> String {
                (0..next(most))
                    .map(|_| letters[usize::try_from(next(letters.len() as u64)).unwrap()])
                    .collect()
            };
            let (pattern, value) = (text(&['a', 'b', 'é', '*', '*'], 7), text(&['a', 'b', 'é'], 9));
            let Some(glob) = Glob::parse(&pattern) else { continue };
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = tried(&chars(&pattern), &chars(&value));
            assert_eq!(glob.fits(&value), expected, "round {round}: `{pattern}` and `{value}`");
            both[usize::from(expected)] += 1;
            let again = Glob::parse(&glob.to_string());
            assert_eq!(again.as_ref(), Some(&glob), "`{pattern}` is shown as one that means the same");
        }
        assert!(both.iter().all(|count| *count > 1_000), "{both:?}");
    }

    #[test]
    fn a_hostile_value_is_read_once() {
        // Exponential backtracking would not finish, and neither would restarting the match at
        // every occurrence of a literal.
        let pattern: String = "*a".repeat(500) + "*b";
        let glob = Glob::parse(&pattern).unwrap();
        let value = "a".repeat(65_536);
        for _ in 0..100 {
            assert!(!glob.fits(&value));
        }
        let long = Glob::parse(&format!("*{}b*", "a".repeat(1_000))).unwrap();
        assert!(!long.fits(&value));
        assert!(long.fits(&(value + "b")));
    }
}
