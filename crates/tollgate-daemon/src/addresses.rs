//! The addresses of the listeners, and their URLs.

use std::fmt;
use std::net::SocketAddr;

/// The bound address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// The address with its port.
    pub socket: SocketAddr,
    /// Whether the listener uses TLS.
    pub tls: bool,
}

impl ListenerAddress {
    /// Returns the URL of an HTTP listener.
    pub fn url(self) -> String {
        format!("{}://{self}", if self.tls { "https" } else { "http" })
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// The bound addresses. A listener that is off has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The gateway.
    pub gateway: Option<ListenerAddress>,
    /// The API.
    pub api: Option<ListenerAddress>,
    /// Envoy's rate limit service.
    pub rls: Option<ListenerAddress>,
    /// The Redis protocol.
    pub resp: Option<ListenerAddress>,
}

impl Addresses {
    /// Returns the URL of the gateway.
    pub fn gateway_url(&self) -> Option<String> {
        self.gateway.map(ListenerAddress::url)
    }

    /// Returns the URL of the API.
    pub fn api_url(&self) -> Option<String> {
        self.api.map(ListenerAddress::url)
    }

    /// Returns the URL of the dashboard for a browser. A wildcard address is replaced by one that can
    /// be opened; with TLS it is a name, for which certificates are issued.
    pub fn page_url(&self) -> Option<String> {
        let api = self.api?;
        let port = api.socket.port();
        Some(match (api.tls, api.socket.is_ipv4()) {
            _ if !api.socket.ip().is_unspecified() => format!("{}/", api.url()),
            (true, _) => format!("https://{}:{port}/", machine_name()),
            (false, true) => format!("http://127.0.0.1:{port}/"),
            (false, false) => format!("http://[::1]:{port}/"),
        })
    }
}

/// Returns the host name of this machine.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
