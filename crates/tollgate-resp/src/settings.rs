//! What a server of this protocol is told at the start.

use std::fmt;
use std::time::Duration;

/// What a server of this protocol is told at the start.
#[derive(Clone, Debug)]
pub struct RespSettings {
    /// Nothing is answered before this is given with `AUTH` or `HELLO`, if it is set.
    pub password: Option<Password>,
    /// Whether a negative quantity, which gives quota back, is refused: for a port that callers reach without showing
    /// who they are.
    pub refuse_refunds: bool,
    /// The most connections at once, on one worker. More wait to be accepted.
    pub connections: usize,
    /// How long a client may go without a complete command.
    pub idle: Duration,
    /// How long a client may take to read what is ready for it.
    pub stalled: Duration,
    /// How long a TLS handshake may take, and then the password to be given.
    pub handshake: Duration,
}

impl Default for RespSettings {
    fn default() -> Self {
        Self {
            password: None,
            refuse_refunds: false,
            connections: 20_000,
            idle: Duration::from_secs(300),
            stalled: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
        }
    }
}

/// A password, which is never shown.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

impl Password {
    /// `None` for an empty one, which would let everybody in.
    ///
    /// ```
    /// # use tollgate_resp::Password;
    /// assert!(Password::new("").is_none());
    /// assert_eq!(format!("{:?}", Password::new("secret")), "Some(Password(..))");
    /// ```
    pub fn new(password: &str) -> Option<Self> {
        (!password.is_empty()).then(|| Self(password.as_bytes().into()))
    }

    /// Whether this is it. How long that takes tells nothing about the password.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        let mut different = self.0.len() ^ given.len();
        for (given, right) in given.iter().zip(self.0.iter().cycle()) {
            different |= usize::from(std::hint::black_box(given ^ right));
        }
        std::hint::black_box(different) == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_the_password() {
        let password = Password::new("secret").unwrap();
        assert!(password.is(b"secret"));
        for other in [&b""[..], b"secre", b"secrets", b"Secret", b"secretsecret", b"\0\0\0\0\0\0"] {
            assert!(!password.is(other));
        }
    }
}
