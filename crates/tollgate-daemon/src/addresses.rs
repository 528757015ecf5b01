//! The addresses of the listeners, and their URLs.

use std::net::SocketAddr;

/// The bound addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each surface speaks TLS or not, whatever the others do")]
pub struct Addresses {
    /// The gateway; `None` if it is off.
    pub gateway: Option<SocketAddr>,
    /// The API; `None` if it is off.
    pub api: Option<SocketAddr>,
    /// Envoy's rate limit service; `None` if it is off.
    pub rls: Option<SocketAddr>,
    /// The Redis protocol; `None` if it is off.
    pub resp: Option<SocketAddr>,
    /// Whether the gateway uses TLS.
    pub gateway_tls: bool,
    /// Whether the API uses TLS.
    pub api_tls: bool,
    /// Whether Envoy's rate limit service uses TLS.
    pub rls_tls: bool,
    /// Whether the Redis protocol uses TLS.
    pub resp_tls: bool,
}

impl Addresses {
    /// Returns the URL of the gateway.
    pub fn gateway_url(&self) -> Option<String> {
        url(self.gateway, self.gateway_tls)
    }

    /// Returns the URL of the API.
    pub fn api_url(&self) -> Option<String> {
        url(self.api, self.api_tls)
    }

    /// Returns the URL of the dashboard for a browser. A wildcard address is replaced by one that can
    /// be opened; with TLS it is a name, for which certificates are issued.
    pub fn page_url(&self) -> Option<String> {
        let api = self.api?;
        if !api.ip().is_unspecified() {
            return self.api_url().map(|url| format!("{url}/"));
        }
        Some(match (self.api_tls, api.is_ipv4()) {
            (true, _) => format!("https://{}:{}/", machine_name(), api.port()),
            (false, true) => format!("http://127.0.0.1:{}/", api.port()),
            (false, false) => format!("http://[::1]:{}/", api.port()),
        })
    }
}

/// Returns the host name of this machine.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn url(address: Option<SocketAddr>, tls: bool) -> Option<String> {
    address.map(|address| format!("{}://{address}", if tls { "https" } else { "http" }))
}
