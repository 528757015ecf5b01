//! What callers of the API must know.
//!
//! Whoever reaches the API can give away quota and empty counters, so outside of
//! this machine it is not served without a token.

use std::fmt;
use std::path::Path;

use super::{Reading, Settings, files, shown};
use crate::failure::Failure;

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;
/// Longer ones do not fit the headers that callers may send.
const LONGEST: usize = 4096;

/// What callers of the API must know. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// The token of these settings: the variable's, else the file's. An API that
    /// other machines can reach must have one.
    pub(crate) fn load(
        settings: &Settings,
        variable: Option<&str>,
        reading: Reading,
    ) -> Result<Option<Self>, Failure> {
        let token = match (variable, &settings.token_file) {
            (Some(text), _) => Some(Self::new(text, "TOLLGATE_ADMIN_TOKEN")?),
            (None, Some(file)) => Some(Self::from_file(file, reading)?),
            (None, None) => None,
        };
        match settings.api.address() {
            Some(address) if token.is_none() && !settings.api.is_private() => Err(Failure::with_help(
                format_args!(
                    "the API would listen on {address}, where other machines reach it, and has no token"
                ),
                "put a token into a file and write `admin: {token_file: FILE}` (head -c 24 /dev/urandom | base64 > FILE), \
                 or set TOLLGATE_ADMIN_TOKEN, or keep it to this machine: --set listen.api=127.0.0.1:7070",
            )),
            _ => Ok(token),
        }
    }

    /// The token itself, for whoever compares it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The one in this file.
    pub(super) fn from_file(file: &Path, reading: Reading) -> Result<Self, Failure> {
        Self::new(&files::read(file, reading)?, &format!("the token file {}", shown(file)))
    }

    fn new(text: &str, what: &str) -> Result<Self, Failure> {
        let text = text.trim();
        let make = "one can be made with: head -c 24 /dev/urandom | base64";
        if text.is_empty() {
            return Err(Failure::with_help(format_args!("{what} is empty"), make));
        }
        if !(SHORTEST..=LONGEST).contains(&text.len()) {
            let message =
                format!("{what} holds {} characters: a token has {SHORTEST} to {LONGEST}", text.len());
            return Err(Failure::with_help(message, make));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("{what} holds characters that no header can carry");
            return Err(Failure::with_help(message, "letters, digits and punctuation on one line"));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_trimmed_long_enough_and_fit_for_a_header() {
        assert_eq!(Token::new(" 0123456789abcdef\n", "it").unwrap().expose(), "0123456789abcdef");
        for (text, expected) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("short", "it holds 5 characters: a token has 16 to 4096"),
            ("0123456789 abcdef", "it holds characters that no header can carry"),
            ("0123456789\nabcdef", "it holds characters that no header can carry"),
            ("0123456789äbcdefg", "it holds characters that no header can carry"),
        ] {
            assert!(Token::new(text, "it").unwrap_err().to_string().contains(expected), "{text:?}");
        }
        assert!(!format!("{:?}", Token::new("0123456789abcdef", "it")).contains("0123"));
    }
}
