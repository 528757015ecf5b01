//! Hides passwords in displayed lines.
//!
//! A settings file names its servers by URLs, and a URL may contain a password:
//! `redis://ann:s3cret@10.0.0.7`. The password must not reach observers of a terminal or readers of
//! a build log. Between `://` and the last `@` of a URL, everything after the user is hidden. Text
//! after `password:`, `passwd=`, `token:` and similar words is hidden too, and text after
//! `webhook:`, whose path is usually a secret. When in doubt, more is hidden.
//!
//! `store` hides even more of the `store` section.

use std::ops::Range;

/// The replacement for hidden text.
const MASK: &str = "***";
/// The endings of words that precede passwords.
const PASSWORD_WORDS: [&str; 11] = [
    "password",
    "pasword",
    "passwort",
    "passwd",
    "passphrase",
    "pass",
    "pwd",
    "secret",
    "auth",
    "token",
    "webhook",
];

/// Hides the passwords of a text: `redis://ann:***@10.0.0.7`.
pub fn redacted(text: &str) -> String {
    without(text, &secrets(text))
}

/// Hides these ranges, which are sorted and disjoint.
pub(super) fn without(text: &str, secrets: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut shown = 0;
    for secret in secrets {
        out.push_str(&text[shown..secret.start]);
        out.push_str(MASK);
        shown = secret.end;
    }
    out.push_str(&text[shown..]);
    out
}

/// Returns the bytes of a line to hide, as sorted and disjoint ranges.
pub(crate) fn secrets(text: &str) -> Vec<Range<usize>> {
    separated(in_urls(text).into_iter().chain(without_slashes(text)).chain(after_words(text)).collect())
}

/// Sorts and merges ranges.
pub(super) fn separated(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.retain(|it| !it.is_empty());
    found.sort_by_key(|it| it.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for next in found {
        match apart.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => apart.push(next),
        }
    }
    apart
}

fn in_urls(text: &str) -> Vec<Range<usize>> {
    let begins: Vec<_> =
        text.match_indices("://").map(|(at, _)| at).filter(|at| is_scheme(&text[..*at])).collect();
    let mut found = Vec::new();
    for (index, begin) in begins.iter().map(|at| at + 3).enumerate() {
        // A password may contain any character, so only the next URL reliably ends this one.
        let end = begins.get(index + 1).copied().unwrap_or(text.len());
        let url = &text[begin..end];
        if let Some(at) = url.rfind('@') {
            let user = url[..at].find(':').map_or(0, |colon| colon + 1);
            found.push(begin + user..begin + at);
        } else if let Some(port) = only_port(url) {
            // `redis://ann:s3cret`, without the host.
            found.push(begin + port.start..begin + port.end);
        }
    }
    found
}

/// Finds `redis:ann:s3cret@h`, a URL without its slashes.
fn without_slashes(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for word in ["redis:", "rediss:", "valkey:", "valkeys:"] {
        for (at, _) in text.match_indices(word) {
            let begin = at + word.len();
            let rest = &text[begin..];
            if let (false, Some(end)) = (rest.starts_with("//"), rest.rfind('@')) {
                found.push(begin..begin + end);
            }
        }
    }
    found
}

/// Returns the text after the colon, if it is not a valid port.
fn only_port(url: &str) -> Option<Range<usize>> {
    let host = url.split([' ', '/', ',', '"', '\'', '`', ']', '}', ')']).next().unwrap_or(url);
    let (before, port) = host.split_once(':')?;
    let is_port = port.bytes().all(|it| it.is_ascii_digit());
    (!is_port && !port.contains(':')).then(|| before.len() + 1..host.len())
}

/// Whether a URL begins here: a scheme at the start of a word.
fn is_scheme(before: &str) -> bool {
    let name = |char: char| char.is_ascii_alphanumeric() || "+-.".contains(char);
    let rest = before.trim_end_matches(name);
    let ends = |char: char| char.is_whitespace() || ",\"'`[{(=".contains(char);
    rest.len() < before.len() && (rest.is_empty() || rest.ends_with(ends))
}

/// Finds the text after words for passwords, in any spelling.
fn after_words(text: &str) -> Vec<Range<usize>> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for word in PASSWORD_WORDS {
        for (at, word) in lower.match_indices(word) {
            let rest = &text[at + word.len()..];
            let value = rest.trim_start_matches(['"', '\'']).trim_start();
            let Some(value) = value.strip_prefix([':', '=']) else { continue };
            let value = value.trim_start();
            let end = value.find(['&', ',', '}', '`', '@']).unwrap_or(value.trim_end().len());
            let begin = text.len() - value.len();
            found.push(begin..begin + end);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_hidden() {
        for (text, expected) in [
            ("store: redis://localhost:6379/1", "store: redis://localhost:6379/1"),
            ("store: redis://ann:s3cret@h/1", "store: redis://ann:***@h/1"),
            ("store: redis://:s3c@ret@h", "store: redis://:***@h"),
            ("store: \"redis://:s3 cr/et@h\"", "store: \"redis://:***@h\""),
            ("store: redis:ann:s3cret@h", "store: redis:***@h"),
            ("store: redis:/ann:s3cret@h", "store: redis:***@h"),
            ("store: redis://s3cret@h", "store: redis://***@h"),
            ("store: redis://ann:s3cret", "store: redis://ann:***"),
            ("store: [redis://a:s3cret@h,redis://a:s3cret@i]", "store: [redis://a:***@h,redis://a:***@i]"),
            ("store: redis://:s3://cret@h", "store: redis://:***@h"),
            ("--set store=http://a:é@h", "--set store=http://a:***@h"),
            ("admin: {token: s3cret, tls: x}", "admin: {token: ***, tls: x}"),
            ("admin: {token_file: /run/token}", "admin: {token_file: /run/token}"),
            ("alerts: {webhook: \"https://h/s3cret\"}", "alerts: {webhook: ***}"),
            (
                "redis-sentinel://h/m?sentinel_password=s3cret&x=1",
                "redis-sentinel://h/m?sentinel_password=***&x=1",
            ),
            (
                "store: {url: redis://h, password: s3cret, ca: x}",
                "store: {url: redis://h, password: ***, ca: x}",
            ),
            ("  password: 's3 cret'  ", "  password: ***  "),
            ("  \"password\": s3cret", "  \"password\": ***"),
            ("password_file: /run/x", "password_file: /run/x"),
            ("password:", "password:"),
            ("redis-sentinel://h/m?sentinel_pasword=s3cret", "redis-sentinel://h/m?sentinel_pasword=***"),
            ("--set redis.Passwd=s3cret", "--set redis.Passwd=***"),
            ("auth: s3cret", "auth: ***"),
            ("name: auth, bucket: 5/minute", "name: auth, bucket: 5/minute"),
            ("bucket: 10/minute", "bucket: 10/minute"),
        ] {
            assert_eq!(redacted(text), expected, "{text}");
        }
    }
}
