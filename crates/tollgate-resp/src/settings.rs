//! The settings of the server.

use std::fmt;
use std::time::Duration;

use crate::peer_call::PeerSettings;

/// The settings of a [`Resp`](crate::Resp) server.
#[derive(Clone, Debug)]
pub struct RespSettings {
    /// The password that clients must send with `AUTH` or `HELLO`, if set.
    pub password: Option<Password>,
    /// The calls of other nodes, if this node has peers.
    pub peers: Option<PeerSettings>,
    /// Whether a negative quantity, which refunds units, is refused. This is for a port without
    /// authentication.
    pub refuse_refunds: bool,
    /// The maximum number of connections of a worker. Further connections wait to be accepted.
    pub connections: usize,
    /// The maximum time without a complete command.
    pub idle: Duration,
    /// The maximum time that a client may take to read its replies.
    pub stalled: Duration,
    /// The timeout of a TLS handshake, and then of authentication.
    pub handshake: Duration,
}

impl Default for RespSettings {
    fn default() -> Self {
        Self {
            password: None,
            peers: None,
            refuse_refunds: false,
            connections: 20_000,
            idle: Duration::from_secs(300),
            stalled: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
        }
    }
}

/// A password that is never shown.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

impl Password {
    /// Creates a password; `None` if it is empty, because an empty password would admit every
    /// client.
    ///
    /// ```
    /// # use tollgate_resp::Password;
    /// assert!(Password::new("").is_none());
    /// assert_eq!(format!("{:?}", Password::new("secret")), "Some(Password(..))");
    /// ```
    pub fn new(password: &str) -> Option<Self> {
        (!password.is_empty()).then(|| Self(password.as_bytes().into()))
    }

    /// Compares in constant time.
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
