//! The ready file: written when all addresses are bound, and removed at the end. A leftover file is
//! removed at the start.
//!
//! A waiting process may read the file as soon as it exists, so it is renamed into place. An existing
//! path that is not a regular file (a pipe, `/dev/stdout`) is written to instead of being replaced.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::configuration::shown;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// The bound addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each surface speaks TLS or not, whatever the others do")]
pub(crate) struct Addresses {
    /// The gateway; `None` if it is off.
    pub(crate) gateway: Option<SocketAddr>,
    /// The API; `None` if it is off.
    pub(crate) api: Option<SocketAddr>,
    /// Envoy's rate limit service; `None` if it is off.
    pub(crate) rls: Option<SocketAddr>,
    /// The Redis protocol; `None` if it is off.
    pub(crate) resp: Option<SocketAddr>,
    /// Whether the gateway uses TLS.
    pub(crate) gateway_tls: bool,
    /// Whether the API uses TLS.
    pub(crate) api_tls: bool,
    /// Whether Envoy's rate limit service uses TLS.
    pub(crate) rls_tls: bool,
    /// Whether the Redis protocol uses TLS.
    pub(crate) resp_tls: bool,
}

impl Addresses {
    /// Returns the URL of the gateway.
    pub(crate) fn gateway_url(&self) -> Option<String> {
        url(self.gateway, self.gateway_tls)
    }

    /// Returns the URL of the API.
    pub(crate) fn api_url(&self) -> Option<String> {
        url(self.api, self.api_tls)
    }

    /// Returns the URL of the dashboard for a browser. A wildcard address is replaced by one that can
    /// be opened; with TLS it is a name, for which certificates are issued.
    pub(crate) fn page_url(&self) -> Option<String> {
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

    /// Returns JSON in the order of the fields. Addresses need no escapes.
    fn to_json(self) -> String {
        let quoted = |text: Option<String>| match text {
            Some(text) => format!("\"{text}\""),
            None => "null".to_owned(),
        };
        let address = |address: Option<SocketAddr>| quoted(address.map(|it| it.to_string()));
        let (gateway, api) = (address(self.gateway), address(self.api));
        let (rls, resp) = (address(self.rls), address(self.resp));
        let (gateway_url, api_url) = (quoted(self.gateway_url()), quoted(self.api_url()));
        format!(
            "{{\"gateway\":{gateway},\"api\":{api},\"rls\":{rls},\"resp\":{resp},\
             \"gateway_url\":{gateway_url},\"api_url\":{api_url}}}\n"
        )
    }
}

/// Returns the host name of this machine.
pub(crate) fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn url(address: Option<SocketAddr>, tls: bool) -> Option<String> {
    address.map(|address| format!("{}://{address}", if tls { "https" } else { "http" }))
}

/// A ready file that was written. It is removed on drop if this process created it.
#[derive(Debug)]
pub(crate) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// Removes a leftover file of a process that was killed.
    pub(crate) fn clear(path: &Path) -> Result<(), Failure> {
        if !fs::metadata(path).is_ok_and(|there| there.is_file()) {
            return Ok(());
        }
        fs::remove_file(path).map_err(|error| {
            Failure::new(format_args!(
                "cannot remove the old ready file {}: {}",
                shown(path),
                reason(&error, Attempt::Write)
            ))
        })
    }

    /// Writes the file atomically.
    pub(crate) fn write(path: &Path, addresses: &Addresses) -> Result<Self, Failure> {
        let failed = |error| {
            Failure::new(format_args!(
                "cannot write the ready file {}: {}",
                shown(path),
                reason(&error, Attempt::Write)
            ))
        };
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            fs::write(path, addresses.to_json()).map_err(failed)?;
            return Ok(Self(None));
        }
        // The temporary name is unique to the process, so that two starts do not interfere.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let written = fs::write(&beside, addresses.to_json()).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            failed(error)
        })?;
        Ok(Self(Some(path.to_owned())))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
