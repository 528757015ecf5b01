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

/// Where everything listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// The gateway, unless it is off.
    pub(crate) gateway: Option<SocketAddr>,
    /// The API, unless it is off.
    pub(crate) api: Option<SocketAddr>,
}

impl Addresses {
    /// In the order of the ports; addresses need no escapes.
    fn to_json(self) -> String {
        let quoted = |address: Option<SocketAddr>| match address {
            Some(address) => format!("\"{address}\""),
            None => "null".to_owned(),
        };
        let (gateway, api) = (quoted(self.gateway), quoted(self.api));
        format!("{{\"gateway\":{gateway},\"api\":{api},\"rls\":null,\"resp\":null}}\n")
    }
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
            Failure::new(format_args!("cannot remove the old ready file {}: {error}", shown(path)))
        })
    }

    /// Writes it, as a whole.
    pub(crate) fn write(path: &Path, addresses: &Addresses) -> Result<Self, Failure> {
        let failed =
            |error| Failure::new(format_args!("cannot write the ready file {}: {error}", shown(path)));
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
