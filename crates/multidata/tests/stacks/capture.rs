//! What passes a stack, in a file that others can read.

use multidata::device::{Medium, TransmitMode, WireConfig, WireEnd, wire};
use multidata::{CaptureFile, InterfaceConfig, Stack, TcpListener, TcpStream};
use pcap_file::pcapng::{Block, PcapNgReader};
use std::io::{Read, Write};
use std::path::Path;

fn address(text: &str) -> InterfaceConfig {
    InterfaceConfig::new(text.parse().expect("a network"))
}

/// Sends a megabyte through two stacks, the first one captured into `path`.
fn transfer(path: &Path, mode: TransmitMode) -> multidata::CaptureCounters {
    let capture = CaptureFile::create(path).expect("the file opens");
    let end = match mode {
        TransmitMode::Lso => WireEnd::offloading(Medium::Ip),
        _ => WireEnd::plain(Medium::Ip),
    };
    let (left, right) = wire(WireConfig::new(end, end));
    let queue = capture.wrap(Box::new(left)).expect("a thread");
    let client = Stack::builder().boxed_interface(queue, address("10.0.0.1/24").mode(mode));
    let client = client.build().expect("a stack");
    let server =
        Stack::builder().interface(right, address("10.0.0.2/24")).build().expect("a stack");
    let listener = TcpListener::bind(&server, "10.0.0.2:7").expect("a free port");
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the end");
        bytes
    });
    let mut stream = TcpStream::connect(&client, "10.0.0.2:7").expect("a route");
    stream.write_all(&pattern()).expect("open");
    drop(stream);
    assert!(reader.join().expect("it reads") == pattern());
    client.shutdown(std::time::Duration::from_secs(10)).expect("all delivered");
    capture.finish().unwrap_or_default()
}

fn pattern() -> Vec<u8> {
    (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The captured file as another implementation reads it: every segment whole, its checksums right,
/// and together the stream that was sent.
#[test]
fn every_segment_is_in_the_file_with_right_checksums_in_every_mode() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for mode in [TransmitMode::Single, TransmitMode::Multidata, TransmitMode::Lso] {
        let path = directory.path().join("packets.pcapng");
        let counters = transfer(&path, mode);
        assert_eq!(counters.capture_lost, 0);
        let file = std::fs::File::open(&path).expect("it was made");
        let mut reader = PcapNgReader::new(file).expect("a section header");
        let (mut packets, mut stream) = (0, vec![None; 1_000_000]);
        let (mut first, mut last_ns) = (None, 0);
        while let Some(block) = reader.next_block() {
            let Block::EnhancedPacket(packet) = block.expect("a sound block") else { continue };
            packets += 1;
            assert!(packet.timestamp.as_nanos() >= last_ns, "in order");
            last_ns = packet.timestamp.as_nanos();
            let info = ip::parse(&packet.data).expect("an IP packet");
            if info.source.to_string() != "10.0.0.1" {
                continue;
            }
            assert!(packet.data.len() <= 1_500, "a segment, not a super-frame");
            let transport = info.transport(&packet.data);
            assert!(ip::transport_checksum_ok(&info, transport), "{mode:?}");
            let sequence =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let payload = &transport[usize::from(transport[12] >> 4) * 4..];
            let start = *first.get_or_insert(sequence.wrapping_add(1));
            let at = sequence.wrapping_sub(start) as usize;
            for (index, byte) in payload.iter().enumerate() {
                stream[at + index] = Some(*byte);
            }
        }
        // An ACK may still have come while the file was closed.
        assert!((packets..packets + 5).contains(&counters.capture_packets), "{packets}");
        let stream: Option<Vec<u8>> = stream.into_iter().collect();
        assert!(stream == Some(pattern()), "{mode:?}");
    }
}

/// A full disk ends the capture and nothing else.
#[test]
fn a_disk_that_is_full_does_not_touch_the_stack() {
    transfer(Path::new("/dev/full"), TransmitMode::Multidata);
}
