//! The settings of the client.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use rustls::ClientConfig;

/// The maximum size of a message, as in gRPC.
pub const DEFAULT_MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Returns the TLS settings of a connection. It is called for each connection, so that a certificate
/// that was replaced is used by the next one.
pub type TlsSource = Arc<dyn Fn() -> Result<Arc<ClientConfig>, String> + Send + Sync>;

/// The address of a configuration server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsServer {
    /// The name or the IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl XdsServer {
    /// Parses `host:port`, with an IPv6 address in brackets.
    ///
    /// ```
    /// # use tollgate_xds::XdsServer;
    /// let server = XdsServer::parse("[::1]:18001").unwrap();
    /// assert_eq!((server.host.as_str(), server.port), ("::1", 18001));
    /// assert_eq!(server.to_string(), "[::1]:18001");
    /// assert_eq!(XdsServer::parse("envoy-gateway"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let host = match host.strip_prefix('[') {
            Some(address) => {
                address.strip_suffix(']').filter(|it| it.parse::<std::net::Ipv6Addr>().is_ok())?
            }
            None => host,
        };
        let is_name = |char: char| char.is_ascii_alphanumeric() || "._-:%".contains(char);
        let is_host = !host.is_empty() && host.chars().all(is_name);
        let is_bare_v6 = host.contains(':') && !text.starts_with('[');
        (is_host && !is_bare_v6).then(|| Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for XdsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The settings of an [`XdsClient`](crate::XdsClient).
#[derive(Clone)]
pub struct XdsSettings {
    /// The configuration server.
    pub server: XdsServer,
    /// The id of this node. The server selects the configuration by it.
    pub node: String,
    /// Further data about this node.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of the call, such as a token.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// TLS; `None`: plain text.
    pub tls: Option<TlsSource>,
    /// The name in the certificate of the server, if it is not the host.
    pub server_name: Option<String>,
    /// The maximum size of a message.
    pub max_message_bytes: usize,
    /// Whether several resources may define one domain.
    pub merge_domains: bool,
}

impl XdsSettings {
    /// Creates settings for a server and a node id, with defaults for the rest.
    pub fn new(server: XdsServer, node: impl Into<String>) -> Self {
        Self {
            server,
            node: node.into(),
            node_metadata: Vec::new(),
            headers: Vec::new(),
            tls: None,
            server_name: None,
            max_message_bytes: DEFAULT_MAX_MESSAGE_BYTES,
            merge_domains: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for (text, is_server) in [
            ("envoy-gateway:18001", true),
            ("10.0.0.7:1", true),
            ("[fe80::1]:18001", true),
            ("::1:18001", false),
            ("envoy-gateway", false),
            ("envoy-gateway:", false),
            (":18001", false),
            ("h:0", false),
            ("h:65536", false),
            ("http://h:1", false),
            ("[h]:1", false),
            ("[::1:1", false),
            ("a b:1", false),
        ] {
            assert_eq!(XdsServer::parse(text).is_some(), is_server, "{text}");
        }
    }
}
