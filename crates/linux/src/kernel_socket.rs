//! Options of the kernel's own sockets that the standard library does not offer.

use crate::system_error::SystemError;
use rustix::fd::AsFd;
use rustix::net::sockopt;

/// Selects the congestion control of a kernel TCP socket (`TCP_CONGESTION`), so that two peers can
/// be compared; a machine's default may be `bbr`, and a namespace may not change it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

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
}
