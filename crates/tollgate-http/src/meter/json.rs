//! Finds one number in streamed JSON without buffering the text.
//!
//! The text arrives in pieces of any size and is read once, byte by byte. The state has a fixed
//! size: the nesting depth, how many names of the path have been matched, and the digits of the
//! number so far.
//!
//! Several texts may follow one another, for example one per line. The last number counts. Input
//! that is not JSON is skipped until [`Scanner::restart`].
//!
//! Not here: which part of a response is JSON (`meter`, `events`), comparing names (`name`), the
//! value of a number (`number`).

use std::sync::Arc;

use super::name::Name;
use super::number::Number;

/// The maximum nesting depth: one bit is kept for each level.
const MAX_DEPTH: u32 = 128;

/// Finds a number by the path of member names that lead to it.
pub(super) struct Scanner {
    path: Arc<[Box<str>]>,
    /// The last number found.
    found: Option<u64>,
    state: State,
    depth: u32,
    /// One bit for each level, innermost lowest: whether the level is an object.
    objects: u128,
    /// How many names of the path have been matched. The next name is expected in an object one
    /// level deeper.
    followed: u32,
    /// Whether the next value belongs to the name that was just matched.
    is_next: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// Before a value or the end of a list.
    Value,
    /// Before a name or the end of an object.
    Name,
    InName(Name),
    /// After a name.
    Colon,
    InText,
    EscapedInText,
    /// In a number; `None` if it is not the number at the path.
    InNumber(Option<Number>),
    /// In `true`, `false` or `null`.
    InWord,
    /// After a value.
    Behind,
    /// The input is not JSON.
    Lost,
}

impl Scanner {
    pub(super) fn new(path: Arc<[Box<str>]>) -> Self {
        Self { path, found: None, state: State::Value, depth: 0, objects: 0, followed: 0, is_next: false }
    }

    pub(super) const fn found(&self) -> Option<u64> {
        self.found
    }

    /// Starts a new text. A number found earlier is kept.
    pub(super) fn restart(&mut self) {
        self.state = State::Value;
        (self.depth, self.objects, self.followed, self.is_next) = (0, 0, 0, false);
    }

    /// Ignores the rest of the current text.
    pub(super) const fn give_up(&mut self) {
        self.state = State::Lost;
    }

    /// Reads the next piece.
    pub(super) fn read(&mut self, mut piece: &[u8]) {
        while let Some((&byte, rest)) = piece.split_first() {
            piece = rest;
            match self.state {
                // Most bytes are string content, which is skipped in one step.
                State::InText if !matches!(byte, b'"' | b'\\') => {
                    let end = rest.iter().position(|it| matches!(it, b'"' | b'\\'));
                    piece = &rest[end.unwrap_or(rest.len())..];
                }
                State::Lost => return,
                _ => self.step(byte),
            }
        }
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::InText, b'"') => State::Behind,
            (State::InText, b'\\') => State::EscapedInText,
            (State::InText | State::EscapedInText, _) => State::InText,
            (State::InName(mut name), _) => {
                if name.read(byte, self.next_name()) {
                    self.is_next = name.is(self.next_name());
                    State::Colon
                } else {
                    State::InName(name)
                }
            }
            (State::InNumber(mut number), b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                if let Some(number) = &mut number {
                    number.read(byte);
                }
                State::InNumber(number)
            }
            (State::InWord, b'a'..=b'z') => State::InWord,
            (State::InNumber(_) | State::InWord, _) => return self.end_plain(byte),
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (State::Colon, b':') => State::Value,
            (State::Name, b'"') => {
                let is_looked_at = self.depth == self.followed + 1;
                State::InName(if is_looked_at { Name::CANDIDATE } else { Name::MISMATCH })
            }
            (State::Value, _) => self.begin(byte),
            (State::Behind, b',') if self.depth > 0 && self.is_object() => State::Name,
            (State::Behind, b',') if self.depth > 0 => State::Value,
            (State::Name | State::Behind, b'}') if self.depth > 0 && self.is_object() => self.leave(),
            (State::Behind, b']') if self.depth > 0 && !self.is_object() => self.leave(),
            // Another text follows.
            (State::Behind, _) if self.depth == 0 => self.begin(byte),
            _ => State::Lost,
        };
    }

    /// Ends a number or a literal before this byte.
    fn end_plain(&mut self, byte: u8) {
        if let State::InNumber(Some(number)) = self.state {
            self.found = number.units().or(self.found);
        }
        self.state = State::Behind;
        self.step(byte);
    }

    /// Starts a value with this byte.
    fn begin(&mut self, byte: u8) -> State {
        let is_next = std::mem::take(&mut self.is_next);
        let is_last = self.followed as usize + 1 == self.path.len();
        match byte {
            b'{' => {
                self.followed += u32::from(is_next && !is_last);
                self.enter(true)
            }
            b'[' => self.enter(false),
            b']' if self.depth > 0 && !self.is_object() => self.leave(),
            b'"' => State::InText,
            b'-' | b'0'..=b'9' => State::InNumber((is_next && is_last).then(|| Number::begin(byte))),
            b't' | b'f' | b'n' => State::InWord,
            _ => State::Lost,
        }
    }

    fn enter(&mut self, object: bool) -> State {
        if self.depth == MAX_DEPTH {
            return State::Lost;
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        if object { State::Name } else { State::Value }
    }

    fn leave(&mut self) -> State {
        self.depth -= 1;
        self.objects >>= 1;
        // Leaves the object of the last matched name.
        if self.followed > 0 && self.depth == self.followed {
            self.followed -= 1;
        }
        State::Behind
    }

    const fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn next_name(&self) -> &[u8] {
        self.path.get(self.followed as usize).map_or(&[], |name| name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn path(names: &[&str]) -> Arc<[Box<str>]> {
        names.iter().map(|name| Box::from(*name)).collect()
    }

    fn found(names: &[&str], pieces: &[&[u8]]) -> Option<u64> {
        let mut scanner = Scanner::new(path(names));
        for piece in pieces {
            scanner.read(piece);
        }
        scanner.found()
    }

    const USAGE: [&str; 2] = ["usage", "total"];

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(found(&USAGE, &[text.as_bytes()]), expected, "{text}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(found(&USAGE, &bytes), expected, "byte by byte: {text}");
    }

    #[test]
    fn a_number_is_found_only_at_its_path() {
        check(r#"{"usage":{"total":12}}"#, Some(12));
        check(" {\n \"id\" : \"x\", \"usage\" : { \"in\": 1 , \"total\" : 12 } }\n", Some(12));
        check(
            r#"{"a":[{"usage":{"total":1}},[]],"b":{},"c":[],"usage":{"d":{"total":2},"total":3}}"#,
            Some(3),
        );
        check(r#"{"total":1}"#, None);
        check(r#"{"usage":{"totals":1,"tota":2,"":3}}"#, None);
        check(r#"{"usage":[{"total":1}]}"#, None);
        check(r#"[{"usage":{"total":1}}]"#, None);
        check(r#"{"x":{"usage":{"total":1}}}"#, None);
        check(r#"{"usage":{"x":{"usage":{"total":1}}}}"#, None);
        check(r#"{"usage":{"x":{"y":1}},"total":5}"#, None);
        check(r#"{"text":"{\"usage\":{\"total\":9}}","usage":{"total":4}}"#, Some(4));
        check(r#"{"text":"\\","usage":{"total":4}}"#, Some(4));
        check(r#"{"us\u0061ge":{"tot\u0061l":4}}"#, Some(4));
        check(r#"{"us\u0062ge":{"total":4},"\"":1,"\\":2,"usage\"":{"total":5}}"#, None);
        check(r#"{"a\"":{"\u0022":1},"usage":{"\\":1,"total":6}}"#, Some(6));
    }

    #[test]
    fn only_non_negative_numbers_are_found() {
        for (number, expected) in [
            ("0", Some(0)),
            ("12.0", Some(12)),
            ("12.01", Some(13)),
            ("1.2e3", Some(1_200)),
            ("1E2", Some(100)),
            ("18446744073709551615", Some(u64::MAX)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("1e999", Some(u64::MAX)),
            ("-1", None),
            ("-0", Some(0)),
            ("null", None),
            ("true", None),
            (r#""12""#, None),
            ("[12]", None),
            ("{}", None),
            ("1-2", None),
            (&"1".repeat(41), Some(u64::MAX)),
            (&format!("2.{}1", "0".repeat(60)), Some(3)),
        ] {
            check(&format!(r#"{{"usage":{{"total":{number}}}}}"#), expected);
        }
    }

    #[test]
    fn the_last_complete_number_counts() {
        check("{\"usage\":{\"total\":1}}\n{\"usage\":{\"total\":2}}\n{\"done\":true}\n", Some(2));
        check(r#"{"usage":{"total":1},"usage":{"total":2}}"#, Some(2));
        check(r#"{"usage":{"total":1},"usage":{"total":null}}"#, Some(1));
        check(r#"{"usage":{"total":12"#, None);
        check(r#"{"usage":{"total":12}"#, Some(12));
    }

    #[test]
    fn invalid_json_is_skipped() {
        for text in
            ["<html>", "[DONE]", "{usage:{total:1}}", "}", r#"{"usage" "total":1}"#, "{,}", "[}", "{]"]
        {
            check(text, None);
            check(&format!("{text}{{\"usage\":{{\"total\":1}}}}"), None);
        }
        let deep = "[".repeat(500);
        check(&deep, None);
        check(&format!(r#"{{"a":{}{},"usage":{{"total":7}}}}"#, "[".repeat(127), "]".repeat(127)), Some(7));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-z\"\\\\{}:,\u{e9}]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            let names = prop_oneof![Just("usage".to_owned()), Just("total".to_owned()), "[a-z\"\\\\]{0,6}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((names, inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn the_scanner_agrees_with_serde_json(value in values(), cut in 1_usize..9, planted in any::<bool>()) {
            let value = if planted { json!({"a": value.clone(), "usage": {"b": value, "total": 5}}) } else { value };
            let expected = value.get("usage").and_then(|it| it.get("total")).and_then(Value::as_u64);
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
                prop_assert_eq!(found(&USAGE, &pieces), expected, "{}", text);
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            found(&USAGE, &[&bytes]);
        }
    }
}
