//! Listening sockets: one for each serving core, all on one port.
//!
//! The kernel spreads connections over the sockets of a SO_REUSEPORT group by a hash, which a shared
//! socket does not: there, the core whose accept was armed first is woken for every connection.
//! SO_REUSEPORT alone would also let a second node of the same user join the port and take half of
//! the consumers, so the port is first asked for without it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Connections waiting to be accepted, for each core; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A killed node's ring lets go of its listening sockets some time after the process is gone: the
/// kernel takes rings down in the background. A restart waits that out before it calls the port taken.
const RELEASE_MAX: Duration = Duration::from_secs(3);
const RELEASE_STEP: Duration = Duration::from_millis(20);

/// Binds `count` sockets and returns them with the address, in which port 0 is replaced.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<(Vec<OwnedFd>, SocketAddr)> {
    let mut address = address;
    if address.port() != 0 {
        wait_free(address)?;
    }
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        // For port 0 the kernel takes a port that nobody uses, not even with SO_REUSEPORT.
        let socket = listening(address, true).map_err(explain)?;
        let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        address.set_port(bound.port());
        sockets.push(OwnedFd::from(socket));
    }
    Ok((sockets, address))
}

/// Finds out whether anybody listens there; the socket it tries with is closed at once.
fn wait_free(address: SocketAddr) -> io::Result<()> {
    let deadline = Instant::now() + RELEASE_MAX;
    loop {
        match listening(address, false) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(RELEASE_STEP);
            }
            Err(error) => return Err(explain(error)),
        }
    }
}

fn listening(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last run that the kernel still remembers.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    // Accepted sockets inherit both, which saves two system calls for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn explain(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "another process listens on this port; stop it, or choose another address with --listen"
        }
        Some(libc::EACCES) => {
            "this user may not use the port; ports below 1024 need CAP_NET_BIND_SERVICE"
        }
        Some(libc::EADDRNOTAVAIL) => "no interface of this host has the address",
        _ => return error,
    };
    io::Error::new(error.kind(), advice)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_port_that_is_let_go_in_time_is_taken() {
        let (sockets, address) = bind(loopback(0), 1).unwrap();
        std::thread::scope(|scope| {
            let again = scope.spawn(move || bind(address, 1).map(|(_, bound)| bound));
            std::thread::sleep(RELEASE_STEP * 3);
            drop(sockets);
            assert_eq!(again.join().unwrap().unwrap(), address);
        });
    }

    #[test]
    fn all_sockets_share_one_free_port_and_pass_nodelay_on() {
        let (sockets, address) = bind(loopback(0), 3).unwrap();
        assert_eq!(sockets.len(), 3);
        assert_ne!(address.port(), 0);
        let listeners: Vec<_> = sockets.into_iter().map(TcpListener::from).collect();
        for listener in &listeners {
            assert_eq!(listener.local_addr().unwrap(), address);
            listener.set_nonblocking(true).unwrap();
        }
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut accepted = [0; 3];
        for (count, listener) in accepted.iter_mut().zip(&listeners) {
            while let Ok((connection, _)) = listener.accept() {
                assert!(connection.nodelay().unwrap());
                *count += 1;
            }
        }
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        assert!(accepted.iter().all(|count| *count > 0), "one socket got all: {accepted:?}");
    }

    #[test]
    fn a_port_that_another_listens_on_is_refused() {
        let plain = TcpListener::bind(loopback(0)).unwrap();
        let error = bind(plain.local_addr().unwrap(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("--listen"), "{error}");
    }

    #[test]
    fn a_second_node_cannot_join_the_first_ones_port() {
        let (_first, address) = bind(loopback(0), 2).unwrap();
        assert_eq!(bind(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_port_of_a_run_just_ended_can_be_used_again() {
        let (sockets, address) = bind(loopback(0), 1).unwrap();
        let listener = TcpListener::from(sockets.into_iter().next().unwrap());
        let client = TcpStream::connect(address).unwrap();
        // Our side closes first, so that the kernel remembers the connection under our port.
        drop(listener.accept().unwrap());
        drop(client);
        drop(listener);
        bind(address, 1).unwrap();
    }

    #[test]
    fn an_address_of_no_interface_is_refused_with_a_reason() {
        let error = bind(SocketAddr::from(([192, 0, 2, 1], 0)), 1).unwrap_err();
        assert!(error.to_string().contains("interface"), "{error}");
    }
}
