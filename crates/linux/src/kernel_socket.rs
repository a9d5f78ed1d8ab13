//! Options of the kernel's own sockets that the standard library does not offer.

use crate::system_error::SystemError;
use rustix::fd::AsFd;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Selects the congestion control of a kernel TCP socket (`TCP_CONGESTION`), so that two peers can
/// be compared; a machine's default may be `bbr`, and a namespace may not change it.
///
/// Only a socket that has no connection yet is as if the algorithm were the default: once `bbr` has had a
/// connection, what is chosen after it is paced, too. A listening socket hands its choice on to what
/// it accepts; for connections to be made there is [`connect`].
///
/// # Errors
/// Where the kernel does not have the algorithm, or does not let an ordinary user have it.
pub fn set_congestion(socket: impl AsFd, algorithm: &str) -> Result<(), SystemError> {
    sockopt::set_tcp_congestion(socket, algorithm).map_err(|errno| {
        SystemError::refused(
            format!("the congestion control {algorithm:?} could not be selected"),
            errno,
        )
    })
}

/// Connects by the kernel's TCP, with this congestion control from the first segment on.
///
/// # Errors
/// What the system says; [`io::ErrorKind::Unsupported`] where [`set_congestion`] fails.
pub fn connect(to: &SocketAddr, algorithm: &str, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(*to), Type::STREAM, Some(Protocol::TCP))?;
    set_congestion(&socket, algorithm)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    socket.connect_timeout(&(*to).into(), timeout)?;
    Ok(socket.into())
}

/// Listens by the kernel's TCP. So many connections may wait to be accepted, where `net.core.somaxconn` lets them; the
/// standard library's 128 are soon there, and whoever comes then is answered a second later.
///
/// # Errors
/// What the system says.
pub fn listen(address: SocketAddr, backlog: usize) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    SockRef::from(&listener).listen(backlog.try_into().unwrap_or(i32::MAX))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn an_algorithm_the_kernel_has_is_selected_and_another_is_refused() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a loopback address");
        // Reno is compiled into every kernel.
        set_congestion(&socket, "reno").expect("every kernel has it");
        let selected = sockopt::tcp_congestion(&socket).expect("an option of TCP sockets");
        assert_eq!(selected, "reno");
        let error = set_congestion(&socket, "no-such").expect_err("no such algorithm");
        assert!(error.message.contains("no-such"), "{error}");
    }

    #[test]
    fn as_many_connections_wait_as_were_asked_for() {
        let listener = listen(([127, 0, 0, 1], 0).into(), 500).expect("a loopback address");
        let to = listener.local_addr().expect("bound");
        let began = std::time::Instant::now();
        let waiting: Vec<_> = (0..500).map(|_| TcpStream::connect_timeout(&to, PATIENCE)).collect();
        assert!(waiting.iter().all(Result::is_ok));
        assert!(began.elapsed() < Duration::from_millis(900), "a SYN had to be repeated");
    }

    #[test]
    fn both_ends_of_a_connection_have_what_was_selected_before_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback address");
        set_congestion(&listener, "reno").expect("every kernel has it");
        let to = listener.local_addr().expect("bound");
        let near = connect(&to, "reno", PATIENCE).expect("somebody listens");
        let (far, _) = listener.accept().expect("connected");
        for socket in [&near, &far] {
            assert_eq!(sockopt::tcp_congestion(socket).expect("an option"), "reno");
        }
        let refused = connect(&to, "no-such", PATIENCE).expect_err("no such algorithm");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("no-such"), "{refused}");
    }
}
