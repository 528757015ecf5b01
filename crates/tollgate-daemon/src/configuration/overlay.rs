//! Values from flags and variables, in the YAML of the files.
//!
//! `--set` and variables accept YAML, because they set any value of a file. A flag for an address takes
//! it literally: `[::1]:7070` is an address, but the start of a list in YAML.

/// A value from a flag or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The origin for messages: `on the command line`.
    pub origin: &'static str,
    /// The text before the value.
    pub typed: String,
    /// The path of the value that it sets.
    pub path: String,
    /// The value in YAML.
    pub value: String,
}

/// Returns the YAML of a literal text, which is also valid within a list. Quotes are added only if
/// needed, so that messages show the text as typed.
pub fn literal(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "./-_:?&=%@".contains(char);
    let begins = |char: char| char.is_ascii_alphanumeric() || "./:".contains(char);
    if text.starts_with(begins) && text.chars().all(plain) && !text.ends_with(':') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns YAML as typed, but quotes addresses that YAML would parse as lists.
pub fn yaml(path: &str, text: &str) -> String {
    if path.starts_with("listen.") && text.trim_start().starts_with('[') {
        return literal(text.trim());
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_only_if_yaml_needs_it() {
        for (text, expected) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("http://a/?b=c&d", "http://a/?b=c&d"),
            ("off", "off"),
            (":8080", ":8080"),
            ("[::1]:0", "'[::1]:0'"),
            ("http://a, http://b", "'http://a, http://b'"),
            ("it's", "'it''s'"),
            ("*", "'*'"),
            ("http:", "'http:'"),
            ("", "''"),
        ] {
            assert_eq!(literal(text), expected, "{text}");
        }
        assert_eq!(yaml("listen.api", " [::1]:0"), "'[::1]:0'");
        assert_eq!(yaml("gateway.upstream", "[http://a]"), "[http://a]");
        assert_eq!(yaml("listen.api", "'[::1]:0'"), "'[::1]:0'");
    }
}
