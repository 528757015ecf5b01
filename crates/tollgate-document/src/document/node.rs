//! Typed access to nodes, with a diagnostic when a node has another type.

use std::ops::{Range, RangeInclusive};

use super::{Entry, Kind, Node};
use crate::diagnostic::{Diagnostic, Located, Place, Problems, redacted};
use crate::rate::{RateText, parse_span_or_zero};
use crate::suggest::{listed, nearest};
use tollgate_core::{Rate, Span};

/// The words of a section.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The name of the section in messages, with its article: `a limit`.
    pub section: &'static str,
    /// The known words.
    pub known: &'static [&'static str],
    /// The words of other tools for the known words.
    pub synonyms: Synonyms,
}

/// Words of this file format, each with the words of other tools for it.
pub type Synonyms = &'static [(&'static str, &'static [&'static str])];

/// Returns the word of this file format for a word of another tool, in any case.
pub fn synonym(synonyms: Synonyms, word: &str) -> Option<&'static str> {
    let is_word = |other: &&str| other.eq_ignore_ascii_case(word);
    synonyms.iter().find(|(_, others)| others.iter().any(is_word)).map(|(here, _)| *here)
}

/// The entries of a section whose words are all known.
#[derive(Clone, Debug)]
pub struct Fields<'d> {
    node: &'d Node,
    entries: &'d [Entry],
    /// The suggestions for unknown words.
    meant: Vec<&'static str>,
}

impl<'d> Fields<'d> {
    /// Returns the value of `word`. An entry without a value counts as absent and was reported.
    pub fn get(&self, word: &str) -> Option<&'d Node> {
        self.entry(word).map(|entry| &entry.value)
    }

    /// Returns the entry of `word`, if it has a value.
    pub fn entry(&self, word: &str) -> Option<&'d Entry> {
        self.entries.iter().find(|entry| entry.name.value == word && entry.value.kind != Kind::Null)
    }

    /// Whether `word` is present, even without a value or misspelled. Then its
    /// absence need not be reported: another diagnostic covers it.
    pub fn mentions(&self, word: &str) -> bool {
        self.entries.iter().any(|entry| entry.name.value == word) || self.meant.contains(&word)
    }

    /// Returns the place where the section begins.
    pub const fn place(&self) -> Place {
        self.node.place
    }
}

impl Node {
    /// Returns the text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a name in a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(entries) => {
                entries.iter().find(|entry| entry.name.value == name).map(|entry| &entry.value)
            }
            _ => None,
        }
    }

    /// Returns the items of a list; any other node is a list of one.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// Describes the node for messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".into(),
            Kind::Scalar { text, .. } => format!("`{}`", short(text)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a map".into(),
        }
    }

    /// Reads a section. Unknown words are reported with a suggestion, and so are
    /// words without a value. Returns `None` if the node is not a map.
    pub fn fields(&self, words: &Words, problems: &mut Problems) -> Option<Fields<'_>> {
        let entries = self.entries(words.section, problems)?;
        let mut meant = Vec::new();
        for (at, Entry { name, value }) in entries.iter().enumerate() {
            let word = name.value.as_str();
            if words.known.contains(&word) {
                if value.kind == Kind::Null {
                    problems
                        .error(name.place, format!("`{word}` has no value"))
                        .label("add a value, or remove the line");
                }
                continue;
            }
            let problem =
                problems.error(name.place, format!("unknown word `{}` in {}", short(word), words.section));
            if let Some(help) = burst_cut_off(entries, at) {
                problem.label("this was cut off from the value before it").help(help);
                continue;
            }
            let meant_here = synonym(words.synonyms, word);
            match meant_here.or_else(|| nearest(word, words.known.iter().copied())) {
                Some(here) => {
                    problem.label(format!("did you mean `{here}`?"));
                    meant.push(here.split(':').next().unwrap_or(here));
                }
                None => {
                    problem.help(format!("{} has {}", words.section, listed(words.known.iter().copied())));
                }
            }
        }
        Some(Fields { node: self, entries, meant })
    }

    /// Returns the entries of a map with arbitrary names.
    pub fn entries(&self, what: &str, problems: &mut Problems) -> Option<&[Entry]> {
        if let Kind::Map(entries) = &self.kind {
            return Some(entries);
        }
        problems
            .error(self.place, format!("{what} is a map of `name: value` lines"))
            .label(format!("this is {}", self.describe()));
        None
    }

    /// Reads a word or a sentence. `what` is its name in messages: `` `by` ``.
    pub fn word(&self, what: &str, problems: &mut Problems) -> Option<Located<&str>> {
        match &self.kind {
            Kind::Scalar { text, .. } if !text.is_empty() => Some(Located::new(text, self.place)),
            Kind::Scalar { .. } | Kind::Null => {
                problems.error(self.place, format!("{what} is empty"));
                None
            }
            Kind::List(_) | Kind::Map(_) => {
                problems
                    .error(self.place, format!("{what} is one value, not {}", self.describe()))
                    .label("write a single value here")
                    .help("a value that begins with `[` or `{` needs quotes");
                None
            }
        }
    }

    /// Reads `true` or `false`. Other booleans of YAML 1.1 are refused.
    pub fn boolean(&self, what: &str, problems: &mut Problems) -> Option<Located<bool>> {
        let word = self.word(what, problems)?;
        let meant = match word.value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" | "1" => "true",
            "false" | "no" | "off" | "n" | "0" => "false",
            _ => "",
        };
        match word.value {
            "true" => return Some(word.map(|_| true)),
            "false" => return Some(word.map(|_| false)),
            _ => {}
        }
        let problem =
            problems.error(self.place, format!("{what} is `true` or `false`, not {}", self.describe()));
        if !meant.is_empty() {
            problem.label(format!("did you mean `{meant}`?"));
            problem.help("yes, no, on and off mean different things to different YAML readers, so they are not accepted");
        }
        None
    }

    /// Reads a whole number in `range`, such as `1_000_000`.
    pub fn whole(
        &self,
        what: &str,
        range: RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<Located<u64>> {
        let word = self.word(what, problems)?;
        match whole_number(word.value) {
            Some(number) if range.contains(&number) => return Some(word.map(|_| number)),
            Some(number) if number < *range.start() => {
                problems
                    .error(self.place, format!("{what} is at least {}", range.start()))
                    .label("this is less");
            }
            None if word.value.bytes().any(|it| !it.is_ascii_digit() && it != b'_') => {
                self.is_not(&format!("{what} is a whole number"), problems)
                    .help("digits only, with `_` between thousands if you like: 1_000_000");
            }
            // More than the range, or more than 64 bits.
            Some(_) | None => {
                problems
                    .error(self.place, format!("{what} is at most {}", range.end()))
                    .label("this is more");
            }
        }
        None
    }

    /// Reads a length of time within a range: `500ms`, `30s`, `5 minutes`.
    pub fn span(
        &self,
        what: &str,
        range: RangeInclusive<Span>,
        problems: &mut Problems,
    ) -> Option<Located<Span>> {
        let word = self.word(what, problems)?;
        match parse_span_or_zero(word.value) {
            Ok(span) if !span.is_zero() && range.contains(&span) => return Some(word.map(|_| span)),
            Ok(_) => {
                self.is_not(&format!("{what} is between {} and {}", range.start(), range.end()), problems);
            }
            Err(mistake) => mistake.report(self, problems),
        }
        None
    }

    /// Reads a rate without a burst: `500/second`.
    pub fn rate(&self, what: &str, problems: &mut Problems) -> Option<Located<Rate>> {
        let word = self.word(what, problems)?;
        match RateText::parse(word.value) {
            Ok(rate) if rate.burst.is_none() => return Some(word.map(|_| rate.rate())),
            Ok(_) => {
                problems.error(self.place, format!("{what} has no burst")).label("only a number and a time");
            }
            Err(mistake) => mistake.report(self, problems),
        }
        None
    }

    /// Reads a number of bytes within a range: `512`, `64KiB`, `8 MiB`.
    pub fn bytes(
        &self,
        what: &str,
        range: RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<Located<u64>> {
        let word = self.word(what, problems)?;
        match byte_count(word.value) {
            Some(bytes) if range.contains(&bytes) => return Some(word.map(|_| bytes)),
            Some(_) => {
                self.is_not(
                    &format!("{what} is between {} and {} bytes", range.start(), range.end()),
                    problems,
                );
            }
            None => {
                self.is_not(&format!("{what} is a number of bytes"), problems)
                    .help("a whole number, or one with KiB, MiB or GiB: 64KiB");
            }
        }
        None
    }

    /// Reports a value of the wrong type.
    fn is_not<'p>(&self, what_it_is: &str, problems: &'p mut Problems) -> &'p mut Diagnostic {
        problems.error(self.place, what_it_is).label(format!("{} is not", self.describe()))
    }

    /// Reads one of a few words, each of which stands for a value.
    pub fn choice<T: Clone>(
        &self,
        what: &str,
        choices: &[(&str, T)],
        problems: &mut Problems,
    ) -> Option<Located<T>> {
        self.choice_with_synonyms(what, choices, &[], problems)
    }

    /// Reads one of a few words, with suggestions for words of other tools.
    pub fn choice_with_synonyms<T: Clone>(
        &self,
        what: &str,
        choices: &[(&str, T)],
        synonyms: Synonyms,
        problems: &mut Problems,
    ) -> Option<Located<T>> {
        let word = self.word(what, problems)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word.value) {
            return Some(word.map(|_| value.clone()));
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let problem = problems.error(self.place, format!("{what} cannot be {}", self.describe()));
        if let Some(meant) = synonym(synonyms, word.value).or_else(|| nearest(word.value, names())) {
            problem.label(format!("did you mean `{meant}`?"));
        }
        problem.help(format!("it can be {}", listed(names()).replace(" and ", " or ")));
        None
    }

    /// Returns the place of some characters of a scalar, or of all of it if it is escaped or folded.
    pub fn part(&self, characters: Range<usize>) -> Place {
        let Kind::Scalar { text, quoted } = &self.kind else { return self.place };
        let quotes = usize::from(*quoted);
        if text.chars().count() + 2 * quotes != self.place.width as usize {
            return self.place;
        }
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let column = self.place.column.saturating_add(small(quotes + characters.start));
        Place { column, width: small(characters.len().max(1)), ..self.place }
    }
}

/// Parses digits with `_` between them: `1_000_000`.
pub fn whole_number(text: &str) -> Option<u64> {
    let apart = !text.starts_with('_') && !text.ends_with('_') && !text.contains("__");
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if text.is_empty() || !apart || !digits {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Parses a whole number with `B`, `KiB`, `MiB` or `GiB`, in any case, or without a unit.
pub fn byte_count(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic() || it == ' ');
    let factor = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    whole_number(digits)?.checked_mul(factor)
}

/// Returns the fix for `{bucket: 1000/minute, burst 200}`, which YAML reads as a separate word
/// `burst 200`.
fn burst_cut_off(entries: &[Entry], at: usize) -> Option<String> {
    let Entry { name, value } = &entries[at];
    let number = name.value.strip_prefix("burst ").filter(|_| value.kind == Kind::Null)?;
    let before = entries.get(at.checked_sub(1)?)?;
    let (word, text) = (before.name.value.as_str(), before.value.text()?);
    let is_burst = matches!(word, "bucket" | "rate") && whole_number(number.trim()).is_some();
    let meant = format!("{word}: \"{}, {}\"", short(text), name.value);
    is_burst.then(|| format!("between braces a comma ends the value: write {meant}"))
}

/// Shortens a text for a message and hides passwords in it.
pub fn short(text: &str) -> String {
    // Hides before cutting: a password without its `@` is not recognized.
    let text = redacted(text);
    if text.chars().count() <= 60 {
        return text;
    }
    format!("{}...", text.chars().take(57).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_powers_of_two() {
        for (text, bytes) in [
            ("512", Some(512)),
            ("1_000B", Some(1_000)),
            ("64KiB", Some(65_536)),
            ("64 k", Some(65_536)),
            ("8 MiB", Some(8 << 20)),
            ("1gib", Some(1 << 30)),
            ("", None),
            ("KiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("64KiX", None),
            ("99999999999999999999G", None),
            ("18446744073709551615k", None),
        ] {
            assert_eq!(byte_count(text), bytes, "{text}");
        }
    }
}
