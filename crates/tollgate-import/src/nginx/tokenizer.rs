//! Splits the text of an nginx configuration into words, braces and semicolons.
//!
//! The rules are those of nginx: words end at blanks, `;` and `{`; quotes and backslashes escape; `#`
//! begins a comment where a word could begin; `${name}` is part of a word.
//!
//! `tree` interprets the words.

use tollgate_document::{Place, Problems};

/// A word or a separator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
    /// `# configuration file NAME:`, which `nginx -T` writes before each file.
    File(String),
}

/// The beginning of a file in the output of `nginx -T`.
const FILE_MARKER: &str = "configuration file ";

/// Returns all tokens with their places. Invalid text is reported and ends the reading.
pub(super) fn tokens(text: &str, problems: &mut Problems) -> Vec<(Token, Place)> {
    let mut reader = Reader { rest: text, line: 1, column: 1 };
    let mut tokens = Vec::new();
    while let Some(next) = reader.next(problems) {
        tokens.push(next);
    }
    tokens
}

struct Reader<'t> {
    rest: &'t str,
    line: u32,
    column: u32,
}

impl Reader<'_> {
    fn take(&mut self) -> Option<char> {
        let char = self.rest.chars().next()?;
        self.rest = &self.rest[char.len_utf8()..];
        if char == '\n' || (char == '\r' && !self.rest.starts_with('\n')) {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(char)
    }

    fn place(&self) -> Place {
        Place { source: 0, line: self.line, column: self.column, width: 1 }
    }

    fn next(&mut self, problems: &mut Problems) -> Option<(Token, Place)> {
        loop {
            let place = self.place();
            match self.rest.chars().next()? {
                '#' => {
                    let comment = self.comment();
                    if let Some(file) = comment.strip_prefix(FILE_MARKER).and_then(|it| it.strip_suffix(':'))
                    {
                        return Some((Token::File(file.to_owned()), place));
                    }
                }
                char @ (';' | '{' | '}') => {
                    self.take();
                    let token = match char {
                        ';' => Token::End,
                        '{' => Token::Open,
                        _ => Token::Close,
                    };
                    return Some((token, place));
                }
                quote @ ('"' | '\'') => {
                    self.take();
                    return self.quoted(quote, place, problems);
                }
                char if char.is_whitespace() => {
                    self.take();
                }
                _ => return Some(self.word(place)),
            }
        }
    }

    /// Returns the text of a comment, up to the end of its line.
    fn comment(&mut self) -> String {
        let end = self.rest.find(['\n', '\r']).unwrap_or(self.rest.len());
        let text = self.rest[..end].trim_start_matches('#').trim().to_owned();
        self.rest = &self.rest[end..];
        text
    }

    fn quoted(&mut self, quote: char, place: Place, problems: &mut Problems) -> Option<(Token, Place)> {
        let mut text = String::new();
        while let Some(char) = self.take() {
            match char {
                '\\' => text.extend(self.escaped()),
                _ if char == quote => return Some((Token::Word(text), self.since(place))),
                _ => text.push(char),
            }
        }
        problems.error(place, "this quote is never closed").label("it begins here");
        None
    }

    fn word(&mut self, place: Place) -> (Token, Place) {
        let mut text = String::new();
        while let Some(char) = self.rest.chars().next() {
            match char {
                '{' if text.ends_with('$') => {}
                ';' | '{' => break,
                _ if char.is_whitespace() => break,
                _ => {}
            }
            self.take();
            match char {
                '\\' => text.extend(self.escaped()),
                _ => text.push(char),
            }
        }
        (Token::Word(text), self.since(place))
    }

    /// Resolves an escape. The backslash is kept, except before quotes, blanks and
    /// itself, because regular expressions contain many of them.
    fn escaped(&mut self) -> Vec<char> {
        match self.take() {
            Some(char @ ('"' | '\'' | '\\')) => vec![char],
            Some('t') => vec!['\t'],
            Some('r') => vec!['\r'],
            Some('n') => vec!['\n'],
            Some(char) => vec!['\\', char],
            None => vec!['\\'],
        }
    }

    /// Returns the place of the text read since `from`, as wide as its first line.
    fn since(&self, from: Place) -> Place {
        let width = if self.line == from.line { self.column.saturating_sub(from.column) } else { 1 };
        Place { width: width.max(1), ..from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut problems = Problems::default();
        let shown = |token: &Token| match token {
            Token::Word(word) => format!("<{word}>"),
            Token::File(file) => format!("#{file}"),
            Token::End => ";".into(),
            Token::Open => "{".into(),
            Token::Close => "}".into(),
        };
        let found: Vec<_> = tokens(text, &mut problems).iter().map(|(token, _)| shown(token)).collect();
        assert_eq!(found, expected, "{text}");
        assert!(!problems.has_errors());
    }

    #[test]
    fn words_are_cut_where_nginx_cuts_them() {
        check("a b;c", &["<a>", "<b>", ";", "<c>"]);
        check("a{b;}", &["<a>", "{", "<b>", ";", "}"]);
        check("a # b;\nc#d;", &["<a>", "<c#d>", ";"]);
        check("a 'b c' \"d;\\\"{\";", &["<a>", "<b c>", "<d;\"{>", ";"]);
        check("k ${a}b$c;", &["<k>", "<${a}b$c>", ";"]);
        check("~ \\.php$ {", &["<~>", "<\\.php$>", "{"]);
        check("# configuration file /etc/nginx/nginx.conf:\nx;", &["#/etc/nginx/nginx.conf", "<x>", ";"]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_reported_where_it_begins() {
        let mut problems = Problems::default();
        tokens("a;\n  b 'c;\n", &mut problems);
        let said = problems.about_text("a;\n  b 'c;\n");
        assert_eq!((said[0].place.line, said[0].place.column), (2, 5));
    }
}
