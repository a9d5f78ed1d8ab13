//! IP_TOS and IP_TTL, IPV6_TCLASS and IPV6_UNICAST_HOPS: what stands in the header of a socket's packets.

use crate::Errno;
use crate::abi::{IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPV6_TCLASS};
use crate::addresses::Domain;
use crate::call::Fd;
use crate::descriptors::File;
use crate::host::Host;
use crate::options::{integer, integer_or_byte, short_integer};
use core::num::NonZeroU8;
use stack::PacketMarks;

/// Hop limit of who asks for none.
const HOP_LIMIT_DEFAULT: i32 = 64;

impl Host {
    /// What an option of this level marks: a socket of AF_INET6 has other marks for IPv4.
    fn marks_of(&mut self, fd: Fd, level: i32) -> Result<&mut PacketMarks, Errno> {
        let domain = match self.files.get(fd)? {
            File::Stream(stream) => stream.domain,
            File::Datagram(datagram) => datagram.domain,
            _ => return Err(Errno::ENOTSOCK),
        };
        if level == IPPROTO_IP && domain == Domain::Inet6 {
            return Ok(&mut self.options(fd)?.marks_ipv4);
        }
        Ok(&mut self.options(fd)?.marks)
    }

    /// IP_TOS and IP_TTL, IPV6_TCLASS and IPV6_UNICAST_HOPS.
    pub(crate) fn set_marks(
        &mut self,
        fd: Fd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let is_stream = self.is_stream(fd);
        let value = match level {
            IPPROTO_IP if name == IP_TOS => short_integer(value)?,
            IPPROTO_IP => integer_or_byte(value)?,
            _ => integer(value)?,
        };
        let marks = self.marks_of(fd, level)?;
        match (level, name) {
            (IPPROTO_IP, IP_TOS) => marks.traffic_class = value as u8,
            (IPPROTO_IPV6, IPV6_TCLASS) => {
                let class = if value == -1 { 0 } else { value };
                marks.traffic_class = u8::try_from(class).map_err(|_| Errno::EINVAL)?;
            }
            // The usual one again.
            _ if value == -1 => marks.hop_limit = None,
            _ => {
                let hop_limit = u8::try_from(value).ok().and_then(NonZeroU8::new);
                marks.hop_limit = Some(hop_limit.ok_or(Errno::EINVAL)?);
            }
        }
        if is_stream {
            // ECN is TCP's own.
            marks.traffic_class &= !0b11;
        }
        Ok(())
    }

    pub(crate) fn marks_option(&mut self, fd: Fd, level: i32, name: i32) -> Result<i32, Errno> {
        let marks = *self.marks_of(fd, level)?;
        Ok(match (level, name) {
            (IPPROTO_IP, IP_TOS) | (IPPROTO_IPV6, IPV6_TCLASS) => marks.traffic_class.into(),
            _ => marks.hop_limit.map_or(HOP_LIMIT_DEFAULT, |limit| limit.get().into()),
        })
    }
}
