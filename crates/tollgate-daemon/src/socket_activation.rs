//! Takes listening sockets from the service manager (socket activation).
//!
//! systemd binds the ports, and starts the service with the open sockets (`sd_listen_fds(3)`). Ports below 1024 then
//! need no capability, and connections wait instead of being refused while the service restarts.
//! `FileDescriptorName=` of the socket unit names the listener: `gateway`, `api`, `rls` or `resp`.
//!
//! Binding an address is in `tollgate_net::Sockets`.
//!
//! Invariant: a passed socket is not reachable from other machines if its setting is not, because the setting
//! decides who needs a token. Tested by `tests::a_socket_that_reaches_further_than_its_setting_is_refused`.

use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_net::Sockets;

use crate::configuration::Listen;
use crate::failure::Failure;
use crate::io_error::{Attempt, reason};

/// The names of the listeners, which the settings have after `listen.`.
const NAMES: [&str; 4] = ["gateway", "api", "rls", "resp"];

/// Whether the sockets were taken. A descriptor has one owner, also with several services in one process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The sockets that the service manager has passed, by name.
#[derive(Default)]
pub(crate) struct PassedSockets(Vec<(String, TcpListener)>);

impl PassedSockets {
    /// Takes the sockets of this process. The second call returns none.
    pub(crate) fn take() -> Result<Self, Failure> {
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(Self::default());
        }
        let passed = sd_notify::listen_fds_with_names()
            .map_err(|error| Failure::new(format_args!("cannot take the sockets of LISTEN_FDS: {error}")))?;
        let sockets = passed.map(|(descriptor, name)| {
            if !NAMES.contains(&name.as_str()) {
                return Err(Failure::with_help(
                    format_args!("the service manager passes a socket with the name `{name}`"),
                    "FileDescriptorName= of the socket unit is gateway, api, rls or resp",
                ));
            }
            let socket = listener(descriptor).ok_or_else(|| {
                Failure::with_help(
                    format_args!("the socket `{name}` of the service manager does not listen for TCP"),
                    "the socket unit has ListenStream=PORT or ListenStream=ADDRESS:PORT, and Accept=no",
                )
            })?;
            Ok((name, socket))
        });
        sockets.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the sockets for a listener, one for each worker; `None` if none was passed for it.
    pub(crate) fn remove(
        &mut self,
        listen: &Listen,
        setting: &str,
        workers: usize,
    ) -> Result<Option<Sockets>, Failure> {
        let name = setting.trim_start_matches("listen.");
        let Some(at) = self.0.iter().position(|(it, _)| it == name) else { return Ok(None) };
        let (_, socket) = self.0.swap_remove(at);
        let failed = |error: &_| {
            let reason = reason(error, Attempt::Other);
            Failure::new(format_args!("cannot use the socket `{name}` of the service manager: {reason}"))
        };
        if listen.address().is_none() {
            return Err(Failure::with_help(
                format_args!("the service manager passes a socket for `{setting}`, which is off"),
                format_args!("disable the socket unit, or remove `{setting}: off`"),
            ));
        }
        let address = socket.local_addr().map_err(|error| failed(&error))?;
        if name != "gateway" && listen.is_private() && !address.ip().to_canonical().is_loopback() {
            return Err(Failure::with_help(
                format_args!(
                    "the socket `{name}` of the service manager is on {address}, and `{setting}` is on loopback"
                ),
                format_args!(
                    "set {setting}={address}, which says what it needs to be reached from other machines"
                ),
            ));
        }
        Sockets::from_listener(socket, workers).map(Some).map_err(|error| failed(&error))
    }

    /// Fails if two sockets were passed for one listener.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.0.first().map_or(Ok(()), |(name, _)| {
            Err(Failure::new(format_args!(
                "the service manager passes more than one socket with the name `{name}`"
            )))
        })
    }
}

/// Returns the TCP listener of a descriptor; `None` if it is something else.
#[allow(unsafe_code, reason = "a descriptor that was open before the start of the process has no owner yet")]
fn listener(descriptor: RawFd) -> Option<TcpListener> {
    // SAFETY: `listen_fds_with_names` has found the descriptor open. If a wrong LISTEN_FDS names one of our own, its
    // owner is the runtime, which outlives this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // Checked before it is owned: no descriptor of our own listens yet, so one that does was passed.
    if !tollgate_net::is_tcp_listener(borrowed) {
        return None;
    }
    // SAFETY: it was passed to this process, and `TAKEN` permits one call.
    Some(unsafe { TcpListener::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(name: &str, address: &str) -> PassedSockets {
        PassedSockets(vec![(name.to_owned(), TcpListener::bind(address).unwrap())])
    }

    fn on(address: &str) -> Listen {
        Listen::On(address.to_owned())
    }

    #[test]
    fn a_passed_socket_replaces_the_address_of_its_setting_on_every_worker() {
        let mut sockets = passed("gateway", "127.0.0.1:0");
        let address = sockets.0[0].1.local_addr().unwrap();
        assert!(sockets.remove(&on("127.0.0.1:7070"), "listen.api", 2).unwrap().is_none());
        let found = sockets.remove(&on("127.0.0.1:8080"), "listen.gateway", 3).unwrap().unwrap();
        assert_eq!((found.address(), found.into_listeners().len()), (address, 3));
        sockets.finish().unwrap();
    }

    #[test]
    fn a_socket_that_reaches_further_than_its_setting_is_refused() {
        for name in ["api", "rls", "resp"] {
            let setting = format!("listen.{name}");
            let error = passed(name, "0.0.0.0:0").remove(&on("127.0.0.1:1"), &setting, 1).unwrap_err();
            assert!(error.to_string().contains("is on loopback"), "{error}");
            assert!(passed(name, "0.0.0.0:0").remove(&on("0.0.0.0:1"), &setting, 1).unwrap().is_some());
            assert!(passed(name, "127.0.0.1:0").remove(&on("127.0.0.1:1"), &setting, 1).unwrap().is_some());
        }
        assert!(
            passed("gateway", "0.0.0.0:0").remove(&on("127.0.0.1:1"), "listen.gateway", 1).unwrap().is_some()
        );
    }

    #[test]
    fn a_socket_of_a_listener_that_is_off_and_a_second_socket_are_errors() {
        let error = passed("resp", "127.0.0.1:0").remove(&Listen::Off, "listen.resp", 1).unwrap_err();
        assert!(error.to_string().contains("which is off"), "{error}");
        let mut two = passed("api", "127.0.0.1:0");
        two.0.extend(passed("api", "127.0.0.1:0").0);
        two.remove(&on("127.0.0.1:1"), "listen.api", 1).unwrap();
        assert!(two.finish().unwrap_err().to_string().contains("more than one socket"));
    }

    #[test]
    fn only_listening_tcp_sockets_are_taken() {
        use std::os::fd::{AsRawFd as _, IntoRawFd as _};
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(listener(file.as_raw_fd()).is_none());
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        assert!(listener(stream.as_raw_fd()).is_none());
        let folder = tollgate_testkit::Scratch::new();
        let unix = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        assert!(listener(unix.as_raw_fd()).is_none());
        assert!(listener(listening.into_raw_fd()).is_some());
    }
}
