//! What the network says of packets, as programs are told it.

use super::*;

/// The sum of RFC 1071 over what has even length.
fn sum(bytes: &[u8], more: u32) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>() + more;
    let sum = (sum & 0xffff) + (sum >> 16);
    (!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes()
}

/// What is said of a packet by the host that it was for.
fn error_about(packet: &[u8], kind: u8, code: u8) -> Vec<u8> {
    let is_ipv4 = packet[0] >> 4 == 4;
    let quoted = &packet[..packet.len().min(48) & !1];
    let mut icmp = vec![kind, code, 0, 0, 0, 0, 0, 0];
    icmp.extend(quoted);
    let len = icmp.len();
    let (ours, theirs) = if is_ipv4 { (12..16, 16..20) } else { (8..24, 24..40) };
    let addresses = [&packet[theirs], &packet[ours]].concat();
    let mut header = match is_ipv4 {
        true => vec![0x45, 0, 0, 20 + len as u8, 0, 0, 0, 0, 64, 1, 0, 0],
        false => vec![0x60, 0, 0, 0, 0, len as u8, 58, 64],
    };
    header.extend(&addresses);
    let pseudo = if is_ipv4 { Vec::new() } else { addresses };
    let more = if is_ipv4 { 0 } else { 58 + len as u32 };
    let checksum = sum(&[pseudo, icmp.clone()].concat(), more);
    icmp[2..4].copy_from_slice(&checksum);
    if is_ipv4 {
        let checksum = sum(&header, 0);
        header[10..12].copy_from_slice(&checksum);
    }
    [header, icmp].concat()
}

// Linux's icmp_err_convert[] and icmpv6_err_convert().
#[test]
fn what_icmp_says_is_told_as_linux_tells_it() {
    let [v4, v6] = [(AF_INET, "10.0.0.2:80"), (AF_INET6, "[fd00::2]:80")];
    for ((domain, peer), kind, code, told) in [
        (v4, 3, 0, Errno::ENETUNREACH),
        (v4, 3, 1, Errno::EHOSTUNREACH),
        (v4, 3, 2, Errno::ENOPROTOOPT),
        (v4, 3, 3, Errno::ECONNREFUSED),
        (v4, 3, 13, Errno::EHOSTUNREACH),
        (v6, 1, 0, Errno::ENETUNREACH),
        (v6, 1, 1, Errno::EACCES),
        (v6, 1, 3, Errno::EHOSTUNREACH),
        (v6, 1, 4, Errno::ECONNREFUSED),
        (v6, 1, 5, Errno::EACCES),
    ] {
        for kind_of_socket in [SOCK_STREAM, SOCK_DGRAM] {
            let mut pair = Pair::new();
            pair.hosts[0].config_mut().addresses.extend("fd00::1/64".parse::<ip::Cidr>());
            let (domain, socket_kind) = (domain.into(), kind_of_socket | SOCK_NONBLOCK);
            let call = Call::Socket { domain, kind: socket_kind, protocol: 0 };
            let fd = pair.call(0, call).value as Fd;
            let connect = Call::Connect { fd, address: address(peer) };
            let mut task = pair.hosts[0].begin(connect);
            let _ = pair.hosts[0].attempt(&mut task).expect("it does not block");
            if kind_of_socket == SOCK_DGRAM {
                let mut task = pair.hosts[0].begin(send(fd, b"x"));
                let _ = pair.hosts[0].attempt(&mut task).expect("it does not block");
            }
            let packet = pair.hosts[0].take_packet().expect("a packet").1;
            pair.hosts[0].inject(&error_about(&packet, kind, code));
            let error = get_int(&mut pair, 0, (fd, SOL_SOCKET, SO_ERROR));
            assert_eq!(error, told.0, "{peer}: {kind}, {code}");
        }
    }
}
