//! The addresses of the peers, and how to reach them.
//!
//! Not here: reading files (the password and the TLS settings are passed as values).

use std::fmt;
use std::time::Duration;

use tollgate_store::server_url::AddressList;
pub use tollgate_store::server_url::{Address, SettingsError};

/// The port of an address without one: that of the Redis protocol in `tollgate serve`.
pub const DEFAULT_PORT: u16 = 7379;

/// The maximum number of members in a list.
pub const MAX_MEMBERS: usize = 256;

/// The deadline of a call if the settings do not say otherwise.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The percentage of a limit that is left after a loss, if the settings do not say otherwise.
const DEFAULT_LOST_SHARE: u8 = 20;

/// The user name that a peer authenticates with.
pub const PEER_USER: &str = "tollgate-peer";

/// The expected format of a URL.
const URL_SHAPE: &str = "such as tollgate://10.0.0.1:7379,10.0.0.2:7379, or one name of all nodes: tollgate://tollgate-headless:7379";

/// The settings of a [`PeerStore`](crate::PeerStore).
///
/// ```
/// # use tollgate_peers::{PeerSettings, SettingsError};
/// let settings = PeerSettings::parse(&["tollgate://10.0.0.1,10.0.0.2:7400"])?;
/// assert_eq!(settings.to_string(), "tollgate://10.0.0.1:7379,10.0.0.2:7400");
/// assert!(PeerSettings::parse(&["tollgate://10.0.0.1,10.0.0.1:7379"]).is_err());
/// # Ok::<(), SettingsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PeerSettings {
    /// The nodes, or the one name under which all of them are found. Two nodes agree about the owner of a
    /// key if they have the same list, so the text of an address identifies a member.
    pub members: Vec<Address>,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// The password that peers authenticate with.
    pub password: Option<String>,
    /// The address in the list under which the other nodes reach this one, if it is known.
    pub advertise: Option<Address>,
    /// The maximum time that a decision waits for another node.
    pub deadline: Duration,
    /// The percentage of a limit with which a key begins whose usage was lost with its node.
    pub lost_share: u8,
}

impl PeerSettings {
    /// Parses URLs: one with all nodes, or one for each node.
    pub fn parse(urls: &[&str]) -> Result<Self, SettingsError> {
        let mut settings = Self {
            members: Vec::new(),
            tls: false,
            password: None,
            advertise: None,
            deadline: DEFAULT_DEADLINE,
            lost_share: DEFAULT_LOST_SHARE,
        };
        for (index, url) in urls.iter().enumerate() {
            let error = |(wrong, expected): (String, &str)| SettingsError::new(index, wrong, expected);
            let tls = settings.take(url).map_err(error)?;
            if index > 0 && tls != settings.tls {
                let wrong = "TLS for one node and not for another is not supported".to_owned();
                return Err(error((wrong, "write `tollgates://` for all nodes, or for none")));
            }
            settings.tls = tls;
        }
        Ok(settings)
    }

    /// Adds the nodes of one URL. Returns whether it speaks TLS.
    fn take(&mut self, url: &str) -> Result<bool, (String, &'static str)> {
        let (scheme, rest) = url.split_once("://").ok_or(("it has no scheme".to_owned(), URL_SHAPE))?;
        let tls = match scheme {
            "tollgate" => false,
            "tollgates" => true,
            _ => return Err(("a list of peers begins with `tollgate://`".to_owned(), URL_SHAPE)),
        };
        if rest.contains('@') {
            let wrong = "a URL of peers holds neither a user nor a password".to_owned();
            return Err((wrong, "write the password into a file, and `password_file` beside `url`"));
        }
        let hosts = rest.strip_suffix('/').unwrap_or(rest);
        if hosts.contains(['/', '?', '#']) {
            return Err(("a URL of peers ends after its addresses".to_owned(), URL_SHAPE));
        }
        for host in hosts.split(',') {
            let address = parse_address(host).ok_or_else(|| (not_an_address(host), URL_SHAPE))?;
            if self.members.contains(&address) {
                let wrong = format!("the list names {address} twice");
                return Err((wrong, "each node is in the list once, under the same address on all nodes"));
            }
            self.members.push(address);
        }
        if self.members.len() > MAX_MEMBERS {
            let wrong = format!("the list has {} nodes", self.members.len());
            return Err((wrong, "at most 256 nodes can be peers"));
        }
        Ok(tls)
    }

    /// Returns the name under which all nodes are found, if the settings have no list.
    pub fn name(&self) -> Option<&Address> {
        match &self.members[..] {
            [only] if only.ip().is_none() => Some(only),
            _ => None,
        }
    }
}

fn not_an_address(text: &str) -> String {
    if text.is_empty() { "an address is missing".to_owned() } else { format!("`{text}` is not an address") }
}

/// Parses the address of a node: `host`, `host:port`, `[ip]` or `[ip]:port`.
pub fn parse_address(text: &str) -> Option<Address> {
    Address::parse(text, DEFAULT_PORT).ok()
}

/// Shows the addresses, without the password.
impl fmt::Display for PeerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "tollgates" } else { "tollgate" };
        write!(f, "{scheme}://{}", AddressList(&self.members))
    }
}

impl fmt::Debug for PeerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSettings")
            .field("url", &self.to_string())
            .field("advertise", &self.advertise)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_and_shown_without_its_password() {
        for (urls, expected) in [
            (&["tollgate://a"][..], "tollgate://a:7379"),
            (
                &["tollgate://A.example:1,[::1],[2001:db8::1]:2/"],
                "tollgate://a.example:1,[::1]:7379,[2001:db8::1]:2",
            ),
            (&["tollgates://a", "tollgates://b"], "tollgates://a:7379,b:7379"),
        ] {
            let mut settings = PeerSettings::parse(urls).unwrap();
            settings.password = Some("hunter2".to_owned());
            assert_eq!(settings.to_string(), expected);
            assert!(!format!("{settings:?}").contains("hunter"));
        }
        assert!(PeerSettings::parse(&["tollgate://a"]).unwrap().name().is_some());
        assert!(PeerSettings::parse(&["tollgate://10.0.0.1"]).unwrap().name().is_none());
        assert!(PeerSettings::parse(&["tollgate://a,b"]).unwrap().name().is_none());
    }

    #[test]
    fn every_mistake_is_named() {
        for (urls, expected) in [
            (&["a:1"][..], "it has no scheme"),
            (&["http://a"], "a list of peers begins with `tollgate://`"),
            (&["tollgate://"], "an address is missing"),
            (&["tollgate://a,,b"], "an address is missing"),
            (&["tollgate://a:0"], "`a:0` is not an address"),
            (&["tollgate://a:70000"], "`a:70000` is not an address"),
            (&["tollgate://10.0.0"], "`10.0.0` is not an address"),
            (&["tollgate://a b"], "`a b` is not an address"),
            (&["tollgate://u:p@a"], "a URL of peers holds neither a user nor a password"),
            (&["tollgate://a/0"], "a URL of peers ends after its addresses"),
            (&["tollgate://a,b,a:7379"], "the list names a:7379 twice"),
            (&["tollgate://a", "tollgate://A"], "the list names a:7379 twice"),
            (&["tollgate://a", "tollgates://b"], "TLS for one node and not for another is not supported"),
        ] {
            assert_eq!(PeerSettings::parse(urls).unwrap_err().wrong, expected, "{urls:?}");
        }
    }
}
