//! The listening sockets of a surface: one for each worker.
//!
//! With one socket for each worker, the kernel distributes connections over the workers, and no two
//! workers wake up for one connection (`SO_REUSEPORT`). A second process could also join such
//! sockets by mistake and would get a share of the connections. The address is therefore first
//! bound without the option. That socket does not listen: it is closed, and with it would be the
//! connections that it had accepted.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::BorrowedFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// The maximum number of attempts to bind a free port that another process took in between.
const MAX_BIND_ATTEMPTS: usize = 8;

/// The listening sockets of a surface, one for each worker.
#[derive(Debug)]
pub struct Sockets {
    address: SocketAddr,
    listeners: Vec<TcpListener>,
}

/// The reason why an address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program listens on the address.
    #[error("{0} is in use by another program")]
    Taken(String),
    /// The user lacks the permission: ports below 1024 require root.
    #[error("this user may not listen on {0}")]
    Forbidden(String),
    /// The address is invalid, or not an address of this machine.
    #[error("cannot listen on {0}")]
    Impossible(String, #[source] io::Error),
}

impl Sockets {
    /// Listens on `host:port`, once for each worker. Port 0 selects a free port.
    pub fn bind(address: &str, workers: usize) -> Result<Self, BindError> {
        let error = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::Taken(address.to_owned()),
            io::ErrorKind::PermissionDenied => BindError::Forbidden(address.to_owned()),
            _ => BindError::Impossible(address.to_owned(), error),
        };
        let nowhere = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        let wanted = address.to_socket_addrs().map_err(error)?.next().ok_or_else(nowhere).map_err(error)?;
        let mut left = MAX_BIND_ATTEMPTS;
        loop {
            left -= 1;
            match listen(wanted, workers) {
                Err(taken) if taken.kind() == io::ErrorKind::AddrInUse && wanted.port() == 0 && left > 0 => {}
                Err(other) => return Err(error(other)),
                Ok(sockets) => return Ok(sockets),
            }
        }
    }

    /// Uses a socket that listens already. The workers share its queue of connections.
    pub fn from_listener(listener: TcpListener, workers: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut listeners = (1..workers).map(|_| listener.try_clone()).collect::<io::Result<Vec<_>>>()?;
        listeners.push(listener);
        Ok(Self { address, listeners })
    }

    /// Returns the bound address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the listeners, one for each worker.
    pub fn into_listeners(self) -> Vec<TcpListener> {
        self.listeners
    }
}

/// Whether a descriptor is a TCP socket that listens.
pub fn is_tcp_listener(descriptor: BorrowedFd<'_>) -> bool {
    let socket = SockRef::from(&descriptor);
    socket.is_listener().unwrap_or(false)
        && socket.local_addr().is_ok_and(|address| address.as_socket().is_some())
}

fn listen(wanted: SocketAddr, workers: usize) -> io::Result<Sockets> {
    let alone = bound(wanted, false)?;
    let address = alone.local_addr()?.as_socket().unwrap_or(wanted);
    let listening = |socket: Socket| {
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    if workers <= 1 {
        return Ok(Sockets { address, listeners: vec![listening(alone)?] });
    }
    drop(alone);
    let listeners = (0..workers).map(|_| listening(bound(address, true)?)).collect::<io::Result<_>>()?;
    Ok(Sockets { address, listeners })
}

/// Returns a socket that is bound and does not listen yet.
fn bound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // `[::]` also accepts IPv4.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_cannot_be_bound_again() {
        let one = Sockets::bind("127.0.0.1:0", 2).unwrap();
        let address = one.address().to_string();
        for workers in [1, 2] {
            assert!(matches!(Sockets::bind(&address, workers), Err(BindError::Taken(_))), "{workers}");
        }
        drop(one);
        assert_eq!(Sockets::bind(&address, 2).unwrap().into_listeners().len(), 2);
    }

    #[test]
    fn no_connection_is_accepted_by_a_socket_that_is_closed_before_it_serves() {
        let probe = bound("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = probe.local_addr().unwrap().as_socket().unwrap();
        let refused = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn workers_share_the_connections_of_a_socket_that_listens_already() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sockets = Sockets::from_listener(listener, 2).unwrap();
        let address = sockets.address();
        let listeners = sockets.into_listeners();
        let _connections = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
        assert!(listeners.len() == 2 && listeners.iter().all(|it| it.accept().is_ok()));
        assert_eq!(listeners[0].accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn invalid_addresses_are_reported() {
        for wrong in ["", "localhost", "127.0.0.1:99999", "203.0.113.1:0"] {
            assert!(matches!(Sockets::bind(wrong, 1), Err(BindError::Impossible(..))), "{wrong}");
        }
    }
}
