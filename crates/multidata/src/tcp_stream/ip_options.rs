//! Options of the IPv4 header (IP_OPTIONS), for one connection.

use super::TcpStream;
use crate::Stack;
use crate::error::socket_error;
use crate::socket::{each_address, ip_options};
use stack::TcpOption;
use std::io;
use std::net::ToSocketAddrs;

impl TcpStream {
    /// As [`TcpStream::connect`], with these options in the header of every packet, the SYN included:
    /// see [`TcpStream::set_ip_options`].
    ///
    /// # Errors
    /// As [`TcpStream::connect`] and [`TcpStream::set_ip_options`].
    pub fn connect_with_ip_options<A: ToSocketAddrs>(
        stack: &Stack,
        address: A,
        options: &[u8],
    ) -> io::Result<Self> {
        let options = ip_options(options)?;
        each_address(address, |address| {
            let home = stack.squeues().for_connection(None, address).map_err(socket_error)?;
            let id = stack.squeue(home).once(|core, now| {
                let id = core.shard.tcp_connect(now, None, address)?;
                let set = core.shard.tcp_set_option(now, id, TcpOption::IpOptions(options));
                if set.is_err() {
                    core.shard.close(now, id);
                }
                set.map(|()| id)
            });
            Self::wait_until_open(stack, home, id.map_err(socket_error)?, address, None)
        })
    }

    /// Puts options into the IPv4 header of every packet from now on (IP_OPTIONS): up to 40 bytes as
    /// they lie in the header, padded to a multiple of four; none takes them away. The kinds taken are
    /// no operation, record route and router alert. Such packets leave one by one, whatever the transmit
    /// mode, and carry that much less payload (RFC 9293, 3.7.1). A connection that was accepted begins without,
    /// and what is answered in TIME-WAIT when the application is gone goes without.
    ///
    /// # Errors
    /// `InvalidInput` for options that are malformed or of another kind, and over IPv6.
    pub fn set_ip_options(&self, options: &[u8]) -> io::Result<()> {
        self.set_option(TcpOption::IpOptions(ip_options(options)?))
    }
}
