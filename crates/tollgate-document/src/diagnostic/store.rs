//! Hides possible passwords in lines of the `store` section.
//!
//! `passwords` finds passwords in any line by the URL or the word before them. That
//! does not suffice here: the author of the file may omit the `redis://`, or misspell the
//! word. So within the section a value is shown only after a word that takes no secrets,
//! and nothing of it up to an `@`.
//!
//! The section is searched in the text, not in the tree, because a file that cannot be parsed
//! has no tree and is displayed too. When in doubt, a line belongs to the section.

use std::ops::Range;

use super::passwords::{secrets, separated, without};
use super::{Diagnostic, Source, Sources};

/// The name of the section, and likely wrong names for it.
const SECTION_NAMES: [&str; 6] = ["store", "stores", "storage", "redis", "valkey", "backend"];
/// The other sections of the file.
const OTHER_SECTIONS: [&str; 19] = [
    "limits", "plans", "allow", "deny", "identify", "client", "headers", "privacy", "max_keys", "tests",
    "listen", "gateway", "log", "observe", "traces", "alerts", "admin", "state", "records",
];
/// Words whose values are addresses.
const ADDRESS_WORDS: [&str; 7] = ["url", "urls", "uri", "address", "host", "hosts", "nodes"];
/// Words whose values are not secret.
const PUBLIC_WORDS: [&str; 28] = [
    "password_file",
    "ca",
    "ca_file",
    "cacert",
    "tls",
    "deadline",
    "timeout",
    "deny_cache",
    "cache",
    "prefix",
    "key_prefix",
    "namespace",
    "outage",
    "breaker",
    "fallback",
    "failures",
    "after",
    "threshold",
    "share",
    "percent",
    "fraction",
    "grace",
    "kind",
    "type",
    "port",
    "database",
    "db",
    "level",
];

/// Returns the bytes of a line to hide; `None` for a line outside the section.
pub(super) fn hidden(source: &Source, line: u32) -> Option<Vec<Range<usize>>> {
    let lower = source.text.to_lowercase();
    if !SECTION_NAMES.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let mut reader = Reader::new(source);
    let text = source.text.replace("\r\n", "\n");
    let mut lines = text.split(['\n', '\r']);
    for before in lines.by_ref().take(line.saturating_sub(1) as usize) {
        reader.read(before);
    }
    let text = lines.next().unwrap_or("");
    let (was_inside, found) = (reader.inside.is_some(), reader.read(text));
    (was_inside || reader.inside.is_some() || !found.is_empty()).then(|| {
        let mut all = secrets(text);
        all.extend(found);
        separated(all)
    })
}

/// Returns the text of a diagnostic about the section, without possible passwords.
pub(super) fn said(it: &Diagnostic, sources: &Sources, text: &str) -> String {
    if hidden(sources.get(it.place.source), it.place.line).is_none() {
        return text.to_owned();
    }
    let pieces: Vec<_> = text.split('`').collect();
    // An odd number of backticks means that a value contains one, so the quotes cannot be matched.
    let all = pieces.len().is_multiple_of(2);
    let redact = |(at, piece): (usize, &&str)| {
        if !all && at % 2 == 0 {
            return (*piece).to_owned();
        }
        let mut found = secrets(piece);
        found.extend(up_to_at(piece));
        found.extend(in_query(piece));
        without(piece, &separated(found))
    };
    pieces.iter().enumerate().map(redact).collect::<Vec<_>>().join("`")
}

/// Reads lines, and tracks whether they belong to the section.
struct Reader {
    /// The column of the section's name, while its lines are read.
    inside: Option<usize>,
    /// Whether the whole file is between braces, where columns have no meaning.
    braces: bool,
    begun: bool,
    is_file: bool,
    /// The last word with a value, which also applies to lines without a word. Empty for a word
    /// that may precede a secret.
    word: &'static str,
    /// The column of that word: lines that are indented further belong to it.
    secret: Option<usize>,
}

impl Reader {
    const fn new(source: &Source) -> Self {
        Self {
            inside: None,
            braces: false,
            begun: false,
            is_file: source.is_file,
            word: "store",
            secret: None,
        }
    }

    /// Returns the ranges to hide in the next line.
    fn read(&mut self, line: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let content = line.trim_start_matches('\u{feff}').trim_start();
        if self.is_file && (content.is_empty() || content.starts_with('#')) {
            if self.inside.is_some() {
                found.extend(up_to_at(line));
            }
            return found;
        }
        let mut begin = 0;
        if !self.begun && !content.starts_with("---") && !content.starts_with('%') {
            self.begun = true;
            self.braces = content.starts_with('{');
            if !self.is_file {
                begin = self.read_typed(line, &mut found);
            }
        }
        let words = words(line, begin);
        let first = words.first().map_or(line.len(), |it| it.name.start);
        if self.inside.is_some() && self.secret.is_some_and(|column| !self.braces && first > column) {
            self.word = "";
            self.hide(line, begin..line.len(), &mut found);
            return found;
        }
        self.secret = None;
        if self.inside.is_some() {
            // Text before the first word belongs to a line above.
            self.hide(line, begin..first, &mut found);
        }
        for (index, word) in words.iter().enumerate() {
            let name = line[word.name.clone()].to_ascii_lowercase();
            if SECTION_NAMES.contains(&name.as_str()) && self.inside.is_none() {
                self.inside = Some(word.name.start);
                self.word = "store";
            } else if let Some(column) = self.inside {
                let ends = if self.braces {
                    OTHER_SECTIONS.contains(&name.as_str())
                } else {
                    self.is_file && index == 0 && word.name.start <= column
                };
                if ends {
                    self.inside = SECTION_NAMES.contains(&name.as_str()).then_some(word.name.start);
                }
                self.word = known(&name);
            }
            if self.inside.is_some() {
                let end = words.get(index + 1).map_or(line.len(), |next| next.name.start);
                // A password may contain any text, including text that looks like another word.
                let end = if self.word.is_empty() { line.len() } else { end };
                self.hide(line, word.value..end, &mut found);
                if self.word.is_empty() {
                    self.secret = Some(word.name.start);
                    break;
                }
            }
        }
        found
    }

    /// Reads the text that was typed before a value: `--set store.url=`, `TOLLGATE_STORE=`, `--store `.
    /// Returns the start of the value.
    fn read_typed(&mut self, line: &str, found: &mut Vec<Range<usize>>) -> usize {
        let is_set = line.starts_with("--set ");
        let end = match line.find('=') {
            Some(at) if is_set || !line.starts_with("--") => at + 1,
            _ => line.find(' ').map_or(0, |at| at + 1),
        };
        let typed = line[..end].trim_end_matches(['=', ' ']).to_ascii_lowercase();
        if SECTION_NAMES.iter().any(|word| typed.contains(word)) {
            self.inside = Some(0);
            let last = typed.rsplit(['.', '_', ' ', '-']).next().unwrap_or_default();
            let whole = typed.rsplit(['.', ' ']).next().unwrap_or_default();
            let named = if known(whole).is_empty() && !is_set { last } else { whole };
            self.word = known(named);
            if self.word.is_empty() {
                found.push(end..line.len());
            }
        }
        end
    }

    /// Hides the parts of a value that may be a password.
    fn hide(&self, line: &str, value: Range<usize>, found: &mut Vec<Range<usize>>) {
        let (text, begin) = (&line[value.clone()], value.start);
        let moved = |it: Range<usize>| begin + it.start..begin + it.end;
        if self.word.is_empty() {
            let shown = text.len() - text.trim_start().len();
            found.push(begin + shown..begin + text.trim_end_matches(['}', ']', ' ', '\t']).len().max(shown));
            return;
        }
        found.extend(up_to_at(text).map(moved));
        found.extend(in_query(text).into_iter().map(moved));
        if self.word == "url" || self.word == "store" {
            found.extend(no_port(text).map(moved));
        }
    }
}

/// Returns the known word; empty for a word that may precede a secret.
fn known(name: &str) -> &'static str {
    if SECTION_NAMES.contains(&name) {
        return "store";
    }
    if ADDRESS_WORDS.contains(&name) {
        return "url";
    }
    PUBLIC_WORDS.iter().chain(&OTHER_SECTIONS).find(|it| **it == name).copied().unwrap_or_default()
}

/// A word and its value: `url: redis://h`.
struct Word {
    name: Range<usize>,
    value: usize,
}

/// Returns the words of a line that have values.
fn words(line: &str, begin: usize) -> Vec<Word> {
    let mut found = Vec::new();
    for (at, _) in line[begin..].match_indices(':') {
        let at = begin + at;
        let before = line[begin..at].trim_end();
        let bare = before.trim_end_matches(['"', '\'']);
        let is_quoted = bare.len() < before.len();
        let follows = line[at + 1..].chars().next();
        if !is_quoted && follows.is_some_and(|it| !it.is_whitespace()) {
            continue;
        }
        let name = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
        let rest = bare.trim_end_matches(name);
        let rest_open = rest.trim_end_matches(['"', '\'']);
        let ends = |char: char| char.is_whitespace() || "{[,".contains(char);
        if rest.len() == bare.len() || !(rest_open.is_empty() || rest_open.ends_with(ends)) {
            continue;
        }
        let start = begin + rest.len();
        // `- name`: the dash is not part of the name.
        found.push(Word { name: start..begin + bare.len(), value: at + 1 });
    }
    found
}

/// Finds `ann:s3cret@h` without a scheme.
fn up_to_at(text: &str) -> Option<Range<usize>> {
    let plain = match text.find("://") {
        Some(at) => {
            text[..at].trim_end_matches(|char: char| char.is_ascii_alphanumeric() || "+-.".contains(char))
        }
        None => text,
    };
    let end = plain.rfind('@')?;
    let open = |char: char| char.is_whitespace() || "\"'[-".contains(char);
    let begin = plain.len() - plain.trim_start_matches(open).len();
    let scheme =
        ["redis:", "rediss:", "valkey:", "valkeys:"].iter().find(|it| plain[begin..].starts_with(**it));
    let begin = begin + scheme.map_or(0, |it| it.len());
    (begin < end).then_some(begin..end)
}

/// Finds `?sentinel_pasword=s3cret`.
fn in_query(text: &str) -> Vec<Range<usize>> {
    let Some(mut begin) = text.find('?').map(|at| at + 1) else { return Vec::new() };
    let mut found = Vec::new();
    for piece in text[begin..].split('&') {
        let value = piece.find('=').map_or(0, |at| at + 1);
        let end = piece.trim_end_matches(['"', '\'', '}', ']', ' ']).len();
        if value < end {
            found.push(begin + value..begin + end);
        }
        begin += piece.len() + 1;
    }
    found
}

/// Finds `ann:s3cret` in place of a host and a port.
fn no_port(text: &str) -> Option<Range<usize>> {
    if text.contains("://") || text.contains('@') {
        return None;
    }
    let open = |char: char| char.is_whitespace() || "\"'[{,".contains(char);
    let value = text.trim_start_matches(open);
    let begin = text.len() - value.len();
    let value = value.trim_end_matches(['"', '\'', '}', ']', ' ', ',']);
    let is_address = value.bytes().all(|it| it.is_ascii_hexdigit() || b":.[]".contains(&it));
    let (before, rest) = value.split_once(':')?;
    let is_port = rest.split(['/', ',']).next().unwrap_or(rest).bytes().all(|it| it.is_ascii_digit());
    (!is_address && !is_port).then(|| begin + before.len() + 1..begin + value.len())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::{Document, Problems};

    /// Returns the displayed last line of a file, for a diagnostic that points into it.
    fn shown(text: &str) -> (String, String) {
        let Ok(document) = Document::parse(text) else {
            let wrong = Document::parse(text).unwrap_err();
            return (wrong.render("p.yaml"), wrong.brief("p.yaml", &HashSet::new()));
        };
        let (mut problems, mut place) = (Problems::default(), document.root().place);
        place.line = u32::try_from(text.lines().count()).unwrap();
        place.column = 1;
        problems.error(place, "wrong");
        let found = problems.into_diagnostics(&document);
        (found.render("p.yaml"), found.brief("p.yaml", &HashSet::new()))
    }

    #[test]
    fn only_harmless_values_of_the_section_are_shown() {
        for (text, expected) in [
            ("store: u:s3cret@h:6379", "store: ***@h:6379"),
            ("store: //u:s3cret@h", "store: ***@h"),
            ("store: u:s3cret", "store: u:***"),
            ("store: 'u:s3cret'", "store: 'u:***'"),
            ("\"store\": \"u:s3cret@h\"", "\"store\": \"***@h\""),
            (
                "store: redis-sentinel://h/p?sentinel_pasword=s3cret",
                "store: redis-sentinel://h/p?sentinel_pasword=***",
            ),
            ("store: redis-sentinel://h/p?s3cret", "store: redis-sentinel://h/p?***"),
            ("store: redis-sentinel://h/p?a=s3cret&b=s3cret", "store: redis-sentinel://h/p?a=***&b=***"),
            ("store: redis://ann:s3cret@h/1", "store: redis://ann:***@h/1"),
            ("store: [redis://h, u:s3cret@i]", "store: [redis://h, u:***@i]"),
            ("store: {url: redis://h, pass: s3cret}", "store: {url: redis://h, pass: ***}"),
            ("store: {auth: s3cret, url: redis://h}", "store: {auth: ***}"),
            ("store: {anything: 's3, ca: s3cret'}", "store: {anything: ***}"),
            ("store: {url: u:s3cret@h, ca: x}", "store: {url: ***@h, ca: x}"),
            ("store:\n  passwd: s3cret", "  passwd: ***"),
            ("store:\n  url: redis://h\n  pwrd: s3cret # why", "  pwrd: ***"),
            ("store:\n  pwrd:\n    s3cret", "    ***"),
            ("store:\n  pwrd: |\n    s3cret", "    ***"),
            ("store:\n  url:\n  - u:s3cret@h", "  - ***@h"),
            ("store:\n- u:s3cret@h", "- ***@h"),
            ("store:\n  pwrd:\n    - s3cret: [", "    ***"),
            ("store:\n  pwrd:\n    a: 1\n    s3cret: 1", "    ***"),
            ("store:\n  pwrd: 1\n  url: redis://h", "  url: redis://h"),
            ("store: redis:ann:s3cret@h", "store: redis:***@h"),
            ("store: {\n  pwrd: s3cret}", "  pwrd: ***}"),
            ("{\n\"limits\": [],\n\"store\": {\n\"pwrd\": \"s3cret\"}}", "\"pwrd\": ***}}"),
            ("{limits: [], store: {pwrd: s3cret}}", "{limits: [], store: {pwrd: ***}}"),
            ("redis: {pwrd: s3cret}", "redis: {pwrd: ***}"),
            ("store: {pwrd: s3cret", "store: {pwrd: ***"),
            ("store: \"u:s3cret@h", "store: \"***@h"),
            // Harmless values are shown.
            ("store: memroy", "store: memroy"),
            ("store: cache.internal:6379", "store: cache.internal:6379"),
            ("store: [redis://a, 10.0.0.7:6379]", "store: [redis://a, 10.0.0.7:6379]"),
            (
                "store: {url: '[::1]:6379', deadline: 50, prefix: a:b}",
                "store: {url: '[::1]:6379', deadline: 50, prefix: a:b}",
            ),
            (
                "store: {url: redis://h, password_file: /run/x}",
                "store: {url: redis://h, password_file: /run/x}",
            ),
            (
                "store:\n  url: redis://h\nlimits: [{by: ipp, bucket: 5/m}]",
                "limits: [{by: ipp, bucket: 5/m}]",
            ),
            ("{store: memory, limits: [{by: ipp}]}", "{store: memory, limits: [{by: ipp}]}"),
            ("limits:\n  - {name: store, by: ipp}", "  - {name: store, by: ipp}"),
        ] {
            let (message, brief) = shown(text);
            let line = message
                .lines()
                .find_map(|it| it.trim_start().split_once(" | ").filter(|(n, _)| n.parse::<u32>().is_ok()));
            assert_eq!(line.map(|it| it.1), Some(expected), "{text}\n{message}");
            assert!(!message.contains("s3c") && !brief.contains("s3c"), "{text}\n{message}\n{brief}");
        }
    }

    #[test]
    fn wherever_a_file_is_cut_off_its_password_is_not_shown() {
        let texts = [
            "store: 'u:s3cret@h:6379'\n",
            "é: 1\r\nstore:\r\n  url: [\"//ü:s3cret@h\", redis://u:s3cret@h?é=s3cret&ü]\n  ä: [",
            "{\"store\": {\"passwd\": \"s3cret\", \"url\": \"redis://h\"}, \"limits\": [",
            "--- # store: u:s3cret@h\nstore: {outage: {auth: 's3cret', x: y}}\n",
            "store:\n  password: |\n    s3cret\n    s3cret: x\n  url: u:s3cret@h\n",
        ];
        for text in texts {
            for end in (0..=text.len()).filter(|it| text.is_char_boundary(*it)) {
                let (message, brief) = shown(&text[..end]);
                assert!(
                    !message.contains("s3cret") && !brief.contains("s3cret"),
                    "{}\n{message}\n{brief}",
                    &text[..end]
                );
            }
        }
    }
}
