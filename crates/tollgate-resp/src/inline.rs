//! Parses inline commands: words on a line, with quotes around words that contain spaces.
//!
//! Quotes follow Redis: `"…"` supports `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH`, `'…'` only `\'`. A
//! closing quote must be followed by a space or the end.

use crate::frame::FrameError;

/// Splits a line into words, appends the words to `text`, and returns the start and length of each.
pub(crate) fn split(
    line: &[u8],
    most: usize,
    text: &mut Vec<u8>,
    mut word: impl FnMut(usize, usize),
) -> Result<(), FrameError> {
    let mut rest = line;
    for count in 0.. {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(());
        }
        if count == most {
            return Err(FrameError::Count);
        }
        let start = text.len();
        rest = take(rest, text)?;
        word(start, text.len() - start);
    }
    Ok(())
}

/// Reads one word and returns the rest of the line.
fn take<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Result<&'l [u8], FrameError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [blank, ..] if blank.is_ascii_whitespace() || *blank == 0 => return Ok(&rest[1..]),
            [b'"', quoted @ ..] => return after_quote(double_quoted(quoted, text)?),
            [b'\'', quoted @ ..] => return after_quote(single_quoted(quoted, text)?),
            [byte, more @ ..] => {
                text.push(*byte);
                more
            }
        }
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], FrameError> {
    match rest.first() {
        None => Ok(rest),
        Some(blank) if blank.is_ascii_whitespace() => Ok(rest),
        Some(_) => Err(FrameError::UnbalancedQuotes),
    }
}

fn double_quoted<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Result<&'l [u8], FrameError> {
    loop {
        let (byte, more) = match rest {
            [] => return Err(FrameError::UnbalancedQuotes),
            [b'"', more @ ..] => return Ok(more),
            [b'\\', b'x', high, low, more @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), more)
            }
            [b'\\', escaped, more @ ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                (byte, more)
            }
            [byte, more @ ..] => (*byte, more),
        };
        text.push(byte);
        rest = more;
    }
}

fn single_quoted<'l>(mut rest: &'l [u8], text: &mut Vec<u8>) -> Result<&'l [u8], FrameError> {
    loop {
        let (byte, more) = match rest {
            [] => return Err(FrameError::UnbalancedQuotes),
            [b'\'', more @ ..] => return Ok(more),
            [b'\\', b'\'', more @ ..] => (b'\'', more),
            [byte, more @ ..] => (*byte, more),
        };
        text.push(byte);
        rest = more;
    }
}

/// The value of a hexadecimal digit.
const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<Vec<u8>>, FrameError> {
        let (mut text, mut places) = (Vec::new(), Vec::new());
        split(line.as_bytes(), 4, &mut text, |start, length| places.push((start, length)))?;
        Ok(places.into_iter().map(|(start, length)| text[start..start + length].to_vec()).collect())
    }

    #[test]
    fn quotes_follow_redis() {
        for (line, expected) in [
            ("", &[][..]),
            ("  \t ", &[]),
            ("ping", &["ping"]),
            (" ping  a\tb ", &["ping", "a", "b"]),
            (r#"echo "a b" 'c d'"#, &["echo", "a b", "c d"]),
            (r#"echo "\x41\n\t\r\"\\" '\'x\n'"#, &["echo", "A\n\t\r\"\\", "'x\\n"]),
            (r#"echo "" ''"#, &["echo", "", ""]),
            (r#"echo "\xzz""#, &["echo", "xzz"]),
            (r#"pre"fix""#, &["prefix"]),
        ] {
            let found = words(line).unwrap();
            assert_eq!(found, expected.iter().map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>(), "{line}");
        }
        for line in [r#"echo "a"#, "echo 'a", r#"echo "a"b"#, "echo 'a'b", r#"echo "a\"#] {
            assert_eq!(words(line), Err(FrameError::UnbalancedQuotes), "{line}");
        }
        assert_eq!(words("a b c d e"), Err(FrameError::Count));
    }
}
