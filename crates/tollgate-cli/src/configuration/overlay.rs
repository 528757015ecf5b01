//! Values from outside the files, as the YAML that the files are written in.
//!
//! `--set` and variables take YAML, since they set whatever a file can say. A flag
//! that stands for one address takes it as it is: `[::1]:7070` is an address to
//! people, and the beginning of a list to YAML.

/// A value from outside the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlay {
    /// Where it was said: `on the command line`.
    pub(crate) origin: &'static str,
    /// What was typed before the value.
    pub(crate) typed: String,
    /// What it sets.
    pub(crate) path: String,
    /// To what, in YAML.
    pub(crate) value: String,
}

/// YAML for a text that was meant as it is, in a list too. Most texts need no quotes,
/// and messages show what was typed.
pub(crate) fn literal(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "./-_:?&=%@".contains(char);
    let begins = |char: char| char.is_ascii_alphanumeric() || "./:".contains(char);
    if text.starts_with(begins) && text.chars().all(plain) && !text.ends_with(':') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// YAML as it was typed, but for addresses that YAML would take for lists.
pub(crate) fn yaml(path: &str, text: &str) -> String {
    if path.starts_with("listen.") && text.trim_start().starts_with('[') {
        return literal(text.trim());
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_quoted_only_where_yaml_would_read_something_else() {
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
