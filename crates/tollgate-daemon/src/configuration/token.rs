//! The tokens of the API.
//!
//! A caller of the API can grant quota, reset counters and switch limits off, so the API is not served
//! to other machines without a token or client certificates.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{LoadPhase, Settings, files, shown};
use crate::failure::Failure;

/// The minimum length of a token; shorter ones can be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// The maximum length of a token, which must fit into a header.
const MAX_TOKEN_BYTES: usize = 4096;

/// A token of the API. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The tokens of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Grants everything.
    pub(crate) admin: Option<Token>,
    /// Grants reads.
    pub(crate) read: Option<Token>,
}

/// The tokens from the environment.
#[derive(Clone, Default)]
pub(crate) struct Variables {
    /// `TOLLGATE_ADMIN_TOKEN`.
    pub(crate) admin: Option<String>,
    /// `TOLLGATE_READ_TOKEN`.
    pub(crate) read: Option<String>,
}

/// Hides the tokens.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

impl Tokens {
    /// Returns the tokens of the settings: from variables, else from files. An API that other machines
    /// can reach needs a token or client certificates.
    pub(crate) fn load(
        settings: &Settings,
        variables: &Variables,
        reading: LoadPhase,
    ) -> Result<Self, Failure> {
        let token = |text: &Option<String>, name: &str, file: &Option<PathBuf>| match (text, file) {
            (Some(text), _) => Token::new(text, name).map(Some),
            (None, Some(file)) => Token::from_file(file, reading).map(Some),
            (None, None) => Ok(None),
        };
        let rules = &settings.admin;
        let admin = token(&variables.admin, "TOLLGATE_ADMIN_TOKEN", &rules.token_file)?;
        let read = token(&variables.read, "TOLLGATE_READ_TOKEN", &rules.read_token_file)?;
        if admin.is_some() && admin == read {
            return Err(Failure::with_help(
                "the admin token and the read token are the same: readers could change everything",
                "make another for one of them: head -c 24 /dev/urandom | base64",
            ));
        }
        let is_guarded = admin.is_some() || rules.knows_certificates();
        if read.is_some() && !is_guarded {
            return Err(Failure::with_help(
                "there is a read token and no admin token, so changes could not be authorized",
                "make an admin token too (`admin.token_file` or TOLLGATE_ADMIN_TOKEN), or leave both out",
            ));
        }
        match settings.api.address() {
            Some(address) if !is_guarded && !settings.api.is_private() => Err(Failure::with_help(
                format_args!(
                    "the API would listen on {address}, where other machines reach it, and has no token"
                ),
                "put a token into a file and write `admin: {token_file: FILE}` (head -c 24 /dev/urandom | base64 > FILE), \
                 or set TOLLGATE_ADMIN_TOKEN, or ask for certificates: `admin: {tls: {certificate: F, key: F, client_ca: F}}`, \
                 or keep it to this machine: --set listen.api=127.0.0.1:7070",
            )),
            _ => Ok(Self { admin, read }),
        }
    }
}

impl Token {
    /// Returns the token in plain text, for comparison.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Reads a token from a file.
    pub(super) fn from_file(file: &Path, reading: LoadPhase) -> Result<Self, Failure> {
        Self::new(&files::read(file, reading)?, &format!("the token file {}", shown(file)))
    }

    fn new(text: &str, what: &str) -> Result<Self, Failure> {
        let text = text.trim();
        let make = "one can be made with: head -c 24 /dev/urandom | base64";
        if text.is_empty() {
            return Err(Failure::with_help(format_args!("{what} is empty"), make));
        }
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len()) {
            let message = format!(
                "{what} holds {} characters: a token has {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES}",
                text.len()
            );
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
    fn a_token_is_trimmed_and_validated() {
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
