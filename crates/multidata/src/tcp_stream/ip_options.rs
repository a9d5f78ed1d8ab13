//! Options of the IPv4 header (IP_OPTIONS), for one connection.

use super::TcpStream;
use crate::socket::ip_options;
use stack::TcpOption;
use std::io;

impl TcpStream {
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
