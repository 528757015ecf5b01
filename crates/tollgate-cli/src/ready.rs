//! The ready file: written when everything listens, removed at the end, and before the
//! start if one is left.
//!
//! Whoever waits for it may read it as soon as it is there, so it appears whole. What
//! is there already and is no ordinary file (a pipe, `/dev/stdout`) is written to instead:
//! taking its place would take it away from whoever reads it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::configuration::shown;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// Where everything listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each surface speaks TLS or not, whatever the others do")]
pub(crate) struct Addresses {
    /// The gateway, unless it is off.
    pub(crate) gateway: Option<SocketAddr>,
    /// The API, unless it is off.
    pub(crate) api: Option<SocketAddr>,
    /// Envoy's rate limit service, unless it is off.
    pub(crate) rls: Option<SocketAddr>,
    /// The Redis protocol, unless it is off.
    pub(crate) resp: Option<SocketAddr>,
    /// Whether the gateway speaks TLS.
    pub(crate) gateway_tls: bool,
    /// Whether the API speaks TLS.
    pub(crate) api_tls: bool,
    /// Whether Envoy is spoken to over TLS.
    pub(crate) rls_tls: bool,
    /// Whether clients of Redis are spoken to over TLS.
    pub(crate) resp_tls: bool,
}

impl Addresses {
    /// What to type for the gateway.
    pub(crate) fn gateway_url(&self) -> Option<String> {
        url(self.gateway, self.gateway_tls)
    }

    /// What to type for the API.
    pub(crate) fn api_url(&self) -> Option<String> {
        url(self.api, self.api_tls)
    }

    /// What to type for the page in a browser: an address that stands for all of this
    /// machine is none to go to. With TLS by name, which is what certificates are for.
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

    /// In the order of the ports; addresses need no escapes.
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

/// What this machine is called.
pub(crate) fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn url(address: Option<SocketAddr>, tls: bool) -> Option<String> {
    address.map(|address| format!("{}://{address}", if tls { "https" } else { "http" }))
}

/// A ready file that was written. Goes away with it, if it is ours.
#[derive(Debug)]
pub(crate) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// Takes away one that is left from before, of a process that was killed.
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

    /// Writes it, as a whole.
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
        // Each process beside its own: two that start at once must not mix.
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
