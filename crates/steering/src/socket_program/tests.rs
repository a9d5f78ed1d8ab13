use super::*;
use crate::layout::{BadLayout, Layout};
use crate::packets::{ethernet, packet, tcp, udp};
use crate::{Class, classify};
use core::net::{IpAddr, SocketAddr};
use device::Medium;
use proptest::prelude::*;

/// What the kernel makes of a program (bpf(4)), for a packet behind no link header.
fn run(program: &[Instruction], ether_type: u16, packet: &[u8]) -> Option<u32> {
    let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
    let load = |offset: u32, len: usize| {
        let offset = offset.wrapping_sub(NETWORK) as usize;
        let bytes = packet.get(offset..offset + len)?;
        Some(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    };
    loop {
        let Instruction { code, jump_true, jump_false, value } = *program.get(at)?;
        at += 1;
        let condition = |holds: bool| usize::from(if holds { jump_true } else { jump_false });
        match code {
            LOAD_HALF if value == ETHER_TYPE => a = ether_type.into(),
            // Reading beyond the packet ends the program with 0.
            LOAD_WORD | LOAD_HALF | LOAD_BYTE => {
                let len = [4, 2, 1][usize::from(code - LOAD_WORD) / 8];
                let Some(word) = load(value, len) else { return Some(0) };
                a = word;
            }
            LOAD_WORD_AT_X => {
                let Some(word) = load(value.wrapping_add(x), 4) else { return Some(0) };
                a = word;
            }
            LOAD_X_HEADER_LEN => {
                let Some(byte) = load(value, 1) else { return Some(0) };
                x = 4 * (byte & 15);
            }
            LOAD_MEMORY => a = memory[value as usize],
            LOAD_VALUE => a = value,
            LOAD_X_VALUE => x = value,
            STORE => memory[value as usize] = a,
            TO_X => x = a,
            FROM_X => a = x,
            ADD_X => a = a.wrapping_add(x),
            MULTIPLY => a = a.wrapping_mul(value),
            MODULO => a %= value,
            AND => a &= value,
            SHIFT_RIGHT => a >>= value,
            EXCLUSIVE_OR_X => a ^= x,
            JUMP => at += value as usize,
            JUMP_EQUAL => at += condition(a == value),
            JUMP_SET => at += condition(a & value != 0),
            RETURN => return Some(value),
            RETURN_A => return Some(a),
            other => panic!("no such instruction: {other:#x}"),
        }
    }
}

fn spread(homes: u16) -> Spread {
    spread_of(Layout::new(1, homes, true), homes)
}

fn spread_of(layout: Result<Layout, BadLayout>, homes: u16) -> Spread {
    Spread::new(layout.expect("a layout"), Policy::Flow, homes).expect("a spread")
}

fn queue(spread: &Spread, packet: &[u8]) -> u32 {
    let program = spread.socket_program().expect("something to spread");
    let is_ipv4 = packet[0] >> 4 == 4;
    let ether_type = if is_ipv4 { ether_type::IPV4 } else { ether_type::IPV6 };
    run(&program, ether_type, packet).expect("it ends")
}

/// The home that has the packet's socket, where it is only one.
fn home(spread: &Spread, packet: &[u8]) -> Option<u32> {
    let home = match classify(packet, Medium::Ip) {
        Class::Tcp(flow) => spread.home_of_reply(flow.local, flow.remote),
        Class::Udp(flow) => spread.home_of_datagrams(flow.local.port()),
        _ => return None,
    };
    Some(home.0.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_frame_comes_to_the_queue_of_its_home(
        ends: [([u8; 16], u16); 2],
        is_ipv4: bool,
        is_tcp: bool,
        homes in 2_u16..9,
    ) {
        let [from, to] = ends.map(|(mut octets, port)| {
            // Unicast of either family.
            octets[0] = if is_ipv4 { 10 } else { 0xfd };
            let [a, b, c, d, ..] = octets;
            let ip = if is_ipv4 { IpAddr::from([a, b, c, d]) } else { IpAddr::from(octets) };
            // No DHCP, of which every home must hear.
            SocketAddr::new(ip, port | 1_024)
        });
        let packet = if is_tcp { tcp(from, to, 5) } else { udp(from, to, b"data") };
        for spread in [spread(homes), spread_of(Layout::new(homes, 0, false), homes)] {
            prop_assert_eq!(Some(queue(&spread, &packet)), home(&spread, &packet));
        }
    }
}

#[test]
fn options_of_ipv4_are_passed_over_and_fragments_come_to_the_first_queue() {
    let spread = spread(4);
    let to = SocketAddr::from(([10, 0, 0, 1], 80));
    let mut seen = [false; 4];
    for port in 2_000..2_040 {
        let from = SocketAddr::from(([10, 0, 0, 2], port));
        let plain = tcp(from, to, 1);
        let wanted = queue(&spread, &plain);
        seen[wanted as usize] = true;
        let mut with_options = plain.clone();
        with_options[0] = 0x46;
        with_options.splice(20..20, [1, 1, 1, 0]);
        assert_eq!(queue(&spread, &with_options), wanted);
        let mut fragment = plain;
        fragment[6] |= 0x20;
        assert_eq!(queue(&spread, &fragment), 0);
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn what_has_no_flow_and_what_is_cut_short_come_to_the_first_queue() {
    let spread = spread(3);
    let (from, to) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 1]));
    assert_eq!(queue(&spread, &packet(from, to, protocol::ICMP, &[8; 40])), 0);
    let whole = tcp(SocketAddr::new(from, 5), SocketAddr::new(to, 80), 1);
    (1..24).for_each(|len| assert_eq!(queue(&spread, &whole[..len]), 0));
    let program = spread.socket_program().expect("something to spread");
    let arp = ethernet(ether_type::ARP, &[0; 28]);
    assert_eq!(run(&program, ether_type::ARP, &arp), Some(0));
}

#[test]
fn the_kernel_takes_programs_of_this_length() {
    // BPF_MAXINSNS.
    let len = spread(64).socket_program().expect("something to spread").len();
    assert!(len <= 4_096, "{len} instructions");
}

#[test]
fn there_is_no_program_where_it_would_decide_nothing() {
    assert_eq!(Spread::SINGLE.socket_program(), None);
    let layout = "R1S4F1".parse().expect("a layout");
    for policy in [Policy::Source, Policy::Protocol] {
        let spread = Spread::new(layout, policy, 4).expect("a spread");
        assert_eq!(spread.socket_program(), None);
    }
}
