//! The ready file: written when all addresses are bound, and removed at the end. A leftover file is
//! removed at the start.
//!
//! A waiting process may read the file as soon as it exists, so it is renamed into place. An existing
//! path that is not a regular file (a pipe, `/dev/stdout`) is written to instead of being replaced.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tollgate_daemon::configuration::shown;
use tollgate_daemon::io_error::Attempt;
use tollgate_daemon::{Addresses, Failure, ListenerAddress};

/// A ready file that was written. It is removed on drop if this process created it.
#[derive(Debug)]
pub(crate) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// Removes a leftover file of a process that was killed.
    pub(crate) fn clear(path: &Path) -> Result<(), Failure> {
        if !fs::metadata(path).is_ok_and(|there| there.is_file()) {
            return Ok(());
        }
        let failed = format!("cannot remove the old ready file {}", shown(path));
        fs::remove_file(path).map_err(|error| Failure::io(failed, &error, Attempt::Write))
    }

    /// Writes the file atomically.
    pub(crate) fn write(
        path: &Path,
        addresses: &Addresses,
        outbound: &[(String, SocketAddr)],
    ) -> Result<Self, Failure> {
        let name = shown(path);
        let failed =
            |error| Failure::io(format_args!("cannot write the ready file {name}"), &error, Attempt::Write);
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            fs::write(path, to_json(addresses, outbound)).map_err(failed)?;
            return Ok(Self(None));
        }
        // The temporary name is unique to the process, so that two starts do not interfere.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let written =
            fs::write(&beside, to_json(addresses, outbound)).and_then(|()| fs::rename(&beside, path));
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

/// Returns JSON in the order of the fields. Addresses need no escapes.
fn to_json(addresses: &Addresses, outbound: &[(String, SocketAddr)]) -> String {
    let quoted = |text: Option<String>| match text {
        Some(text) => format!("\"{text}\""),
        None => "null".to_owned(),
    };
    let address = |address: Option<ListenerAddress>| quoted(address.map(|it| it.to_string()));
    let (gateway, api) = (address(addresses.gateway), address(addresses.api));
    let (rls, resp) = (address(addresses.rls), address(addresses.resp));
    let (gateway_url, api_url) = (quoted(addresses.gateway_url()), quoted(addresses.api_url()));
    let outbound: Vec<_> =
        outbound.iter().map(|(name, address)| format!("{}:\"{address}\"", serde_json::json!(name))).collect();
    let outbound =
        if outbound.is_empty() { String::new() } else { format!(",\"outbound\":{{{}}}", outbound.join(",")) };
    format!(
        "{{\"gateway\":{gateway},\"api\":{api},\"rls\":{rls},\"resp\":{resp},\
         \"gateway_url\":{gateway_url},\"api_url\":{api_url}{outbound}}}\n"
    )
}
