//! Steering: any frames, split by any layout and carried through soft rings, are what the stack's own
//! parsers say, each in its home once, in order, and none is lost without a count.
//!
//! The first byte chooses layout and medium. What follows is frames: two bytes of length each, and so
//! many bytes, or what is left.

use batch::{Block, Frame, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use device::{HardwareAddress, Medium};
use ip::IcmpIncoming;
use steering::{
    Class, Home, Layout, Policy, SoftRing, SoftRingConfig, SoftRingSet, Spread, Transport, classify,
};
use wire::{TcpHeader, UdpView, protocol};

/// The station of the Ethernet frames.
const OURS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);

/// Rings, soft rings, fan-out, homes.
const LAYOUTS: [(u16, u16, bool, u16); 6] = [
    (1, 2, true, 2),
    (1, 8, true, 3),
    (4, 0, false, 4),
    (4, 2, false, 4),
    (1, 8, false, 1),
    (1, 0, false, 1),
];

/// Room for this many frames of a ring, so that floods meet its bounds.
const RING: SoftRingConfig = SoftRingConfig { frames_max: 12, bytes_max: 4_096 };

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let (rings, soft_rings, fan_out, homes) = LAYOUTS[usize::from(choice) % LAYOUTS.len()];
    let layout = Layout::new(rings, soft_rings, fan_out).expect("within bounds");
    assert_eq!(layout.to_string().parse(), Ok(layout));
    let policy = Policy::ALL[usize::from(choice >> 3) % Policy::ALL.len()].0;
    let spread = Spread::new(layout, policy, homes).expect("within bounds");
    let medium = if choice & 0x80 == 0 { Medium::Ip } else { Medium::Ethernet(OURS) };
    let ring = u16::from(choice >> 5) % rings;
    let mut set = SoftRingSet::new(spread, ring);
    let mut batch = frames(rest);
    let classes: Vec<Class> = (0..batch.len())
        .map(|index| {
            let frame = batch.bytes(index);
            let class = classify(frame, medium);
            let packet = match medium {
                Medium::Ip => frame,
                Medium::Ethernet(_) => frame.get(14..).unwrap_or(&[]),
            };
            agrees(&class, packet, medium == Medium::Ip);
            class
        })
        .collect();
    let frames: Vec<Vec<u8>> = (0..batch.len()).map(|it| batch.bytes(it).to_vec()).collect();
    set.split(&mut batch, medium);
    assert!(batch.is_empty());
    let own = set.home();
    let copies = |class| home(&spread, class, own).map_or(usize::from(homes), |_| 1);
    let split: usize = set.lanes_mut().iter().map(|lane| lane.len()).sum();
    assert_eq!(split, classes.iter().map(copies).sum::<usize>());
    let mut at_home = vec![Vec::new(); homes.into()];
    for lane in set.lanes_mut() {
        let (home, before) = (lane.home(), lane.len());
        let ring = SoftRing::new(RING);
        let pushed = lane.push_to(&ring);
        assert!(lane.is_empty() && pushed.queued <= RING.frames_max);
        assert_eq!(pushed.queued + pushed.dropped, before);
        assert_eq!(ring.drops().total(), pushed.dropped as u64);
        let mut out = ReceiveBatch::new();
        while ring.drain(out.len() + 5, &mut out).more {}
        assert_eq!(out.len(), pushed.queued);
        let at_home: &mut Vec<Vec<u8>> = &mut at_home[home.index()];
        at_home.extend((0..out.len()).map(|it| out.bytes(it).to_vec()));
        // Within a lane frames keep their order: what came out is found again in it.
        let mut source = frames.iter();
        assert!((0..out.len()).all(|it| source.any(|frame| frame == out.bytes(it))));
    }
    for (frame, class) in frames.iter().zip(&classes) {
        let expected = home(&spread, class, own);
        for (index, at_home) in at_home.iter().enumerate() {
            let is_expected = expected.is_none_or(|home| home.index() == index);
            assert!(is_expected || !only_once(&frames, frame) || !at_home.contains(frame));
        }
    }
}

/// Whether no other frame has these bytes: equal ones are of one class, but not of one home where
/// everything of a class goes to the ring's.
fn only_once(frames: &[Vec<u8>], frame: &Vec<u8>) -> bool {
    frames.iter().filter(|other| *other == frame).count() == 1
}

/// The home of a class as the documentation has it; `None` for every home.
fn home(spread: &Spread, class: &Class, own: Home) -> Option<Home> {
    match class {
        // Whoever does not have the connection hands it on.
        Class::Tcp(_) if spread.layout().is_spread_by_device() => Some(own),
        Class::Tcp(flow) | Class::IcmpError(Transport::Tcp, flow) => {
            Some(spread.home_of_reply(flow.local, flow.remote))
        }
        Class::Udp(flow) | Class::IcmpError(Transport::Udp, flow) => {
            Some(spread.home_of_datagrams(flow.local.port()))
        }
        Class::Everyone => None,
        Class::Fragment { .. } | Class::Other => Some(Home::FIRST),
    }
}

/// The class is what the parsers find. `is_bare` where nothing but the packet can be wrong.
fn agrees(class: &Class, packet: &[u8], is_bare: bool) {
    let info = ip::parse(packet);
    match class {
        Class::Tcp(flow) | Class::Udp(flow) => {
            let info = info.expect("readable");
            assert_eq!((flow.remote.ip(), flow.local.ip()), (info.source, info.destination));
            let ports = (flow.remote.port(), flow.local.port());
            let transport = info.transport(packet);
            if info.protocol == protocol::TCP {
                if let Ok((header, _)) = TcpHeader::parse(transport) {
                    assert_eq!(ports, (header.source_port, header.destination_port));
                }
            } else {
                let view = UdpView::parse(transport).expect("readable");
                assert_eq!(ports, (view.source_port(), view.destination_port()));
            }
        }
        Class::IcmpError(..) => {
            let info = info.expect("readable");
            let message = ip::parse_icmp(&info, info.transport(packet));
            assert!(matches!(message, Ok(IcmpIncoming::Error(_))));
        }
        Class::Fragment { source, destination } => {
            let fragment = ip::parse_fragment(packet).expect("readable");
            assert_eq!((*source, *destination), (fragment.info.source, fragment.info.destination));
        }
        Class::Everyone => assert!(!is_bare || info.is_ok()),
        Class::Other => {
            if let (Ok(info), true) = (info, is_bare) {
                let transport = info.transport(packet);
                assert!(info.protocol != protocol::TCP || TcpHeader::parse(transport).is_err());
                assert!(info.protocol != protocol::UDP || UdpView::parse(transport).is_err());
            }
        }
    }
}

fn frames(mut rest: &[u8]) -> ReceiveBatch {
    let mut batch = ReceiveBatch::new();
    let block = batch.add_block(Block::from(Bytes::copy_from_slice(rest)));
    let mut offset = 0;
    while let [high, low, body @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(body.len());
        let checksum = ReceivedChecksum::Unverified;
        let frame = Frame { block, offset: offset + 2, len: len as u32, checksum, segmented: None };
        assert!(batch.push_frame(frame));
        offset += 2 + len as u32;
        rest = &body[len..];
    }
    batch
}
