//! The address of a listener: `host:port`, or `off`.

use std::net::IpAddr;

use tollgate_document::{Located, Node, Problems};

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// The listener is off.
    Off,
    /// Listens on `host:port`.
    On(String),
    /// Listens on `host:port` unless it is in use; for listeners that are on by default.
    IfFree(String),
}

impl Listen {
    /// Returns the address, if there is one.
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Self::Off => None,
            Self::On(address) | Self::IfFree(address) => Some(address),
        }
    }

    /// Whether only programs on this machine can connect. A name other than `localhost` may resolve to
    /// any address, so it counts as reachable.
    pub(crate) fn is_private(&self) -> bool {
        let Some((host, _)) = self.address().and_then(|it| it.rsplit_once(':')) else { return true };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// Parses an address; `default` completes the suggestion in an error.
    pub(crate) fn read(
        node: &Node,
        what: &str,
        default: &str,
        problems: &mut Problems,
    ) -> Option<Located<Self>> {
        let word = node.word(what, problems)?;
        match parse(word.value, default) {
            Ok(listen) => Some(word.map(|_| listen)),
            Err(meant) => {
                let problem = problems
                    .error(node.place, format!("{what} is `host:port` or `off`, not {}", node.describe()));
                if let Some(meant) = meant {
                    problem.label(format!("did you mean `{meant}`?"));
                }
                problem.help(format!("such as {default}; port 0 is any free one, 0.0.0.0 every interface"));
                None
            }
        }
    }
}

/// Parses an address, or returns a suggestion.
fn parse(text: &str, default: &str) -> Result<Listen, Option<String>> {
    let (default_host, default_port) = default.rsplit_once(':').unwrap_or((default, "0"));
    let is_port = |text: &str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) && text.parse::<u16>().is_ok()
    };
    if text == "off" {
        return Ok(Listen::Off);
    }
    if ["no", "none", "false", "disabled", "never"].iter().any(|it| text.eq_ignore_ascii_case(it))
        || text.eq_ignore_ascii_case("off")
    {
        return Err(Some("off".to_owned()));
    }
    if is_port(text) {
        return Err(Some(format!("{default_host}:{text}")));
    }
    for scheme in ["http://", "https://", "tcp://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            let bare = rest.split('/').next().unwrap_or(rest);
            return Err(parse(bare, default).ok().map(|_| bare.to_owned()));
        }
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        return Err(Some(format!("{host}:{default_port}")));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(is_host(text).then(|| format!("{text}:{default_port}")));
    };
    match host {
        _ if !is_port(port) => Err(None),
        "" => Err(Some(format!("{default_host}:{port}"))),
        "*" => Err(Some(format!("0.0.0.0:{port}"))),
        _ if host.starts_with('[') => {
            let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            let fine = inner.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
            if fine { Ok(Listen::On(text.to_owned())) } else { Err(None) }
        }
        _ if host.parse::<std::net::Ipv6Addr>().is_ok() => Err(Some(format!("[{host}]:{port}"))),
        _ if is_host(host) => Ok(Listen::On(text.to_owned())),
        _ => Err(None),
    }
}

fn is_host(text: &str) -> bool {
    // Only digits and dots: an address, or an invalid one.
    let numeric = text.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    if numeric {
        return text.parse::<std::net::Ipv4Addr>().is_ok();
    }
    (1..=253).contains(&text.len())
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, expected) in [
            ("127.0.0.1:0", Ok(())),
            ("0.0.0.0:65535", Ok(())),
            ("[::1]:8080", Ok(())),
            ("localhost:80", Ok(())),
            ("tollgate.internal:80", Ok(())),
            ("off", Ok(())),
            ("8080", Err(Some("127.0.0.1:8080"))),
            (":8080", Err(Some("127.0.0.1:8080"))),
            ("*:8080", Err(Some("0.0.0.0:8080"))),
            ("0.0.0.0", Err(Some("0.0.0.0:7070"))),
            ("::1", Err(Some("[::1]:7070"))),
            ("localhost", Err(Some("localhost:7070"))),
            ("http://127.0.0.1:8080/", Err(Some("127.0.0.1:8080"))),
            ("no", Err(Some("off"))),
            ("OFF", Err(Some("off"))),
            ("127.0.0.1:65536", Err(None)),
            ("127.0.0.1:", Err(None)),
            ("127.0.0.1:http", Err(None)),
            ("127.0.0:80", Err(None)),
            ("[::1:80", Err(None)),
            ("a b:80", Err(None)),
            ("-1", Err(Some("-1:7070"))),
        ] {
            let found = parse(text, "127.0.0.1:7070");
            assert_eq!(found.map(|_| ()), expected.map_err(|it| it.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_private() {
        for (address, private) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("localhost:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("db.internal:1", false),
        ] {
            assert_eq!(Listen::On(address.into()).is_private(), private, "{address}");
        }
    }
}
