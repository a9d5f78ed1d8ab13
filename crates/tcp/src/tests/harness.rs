//! A connection driven by hand-built segments, in virtual time.

use crate::{Config, Connection, Parameters, Segment, State};
use batch::{Block, BlockPool, Chunk, Limits, Multidata, PoolConfig};
use bytes::Bytes;
use counters::DropReason;
use std::collections::VecDeque;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

pub(crate) const ISS: SeqNumber = SeqNumber(u32::MAX - 4_000);
pub(crate) const IRS: SeqNumber = SeqNumber(u32::MAX - 9_000);
pub(crate) const LOCAL_PORT: u16 = 80;
pub(crate) const REMOTE_PORT: u16 = 1_024;
pub(crate) const MSS: usize = 1_000;

pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const FIN: TcpFlags = TcpFlags::FIN;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const PSH: TcpFlags = TcpFlags::PSH;

/// A segment that was sent, parsed.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) header: TcpHeader,
    pub(crate) payload: Vec<u8>,
    pub(crate) run: u32,
    /// The ECN bits its packet is to have.
    pub(crate) ecn: u8,
}

impl Sent {
    /// SEG.SEQ counted from our ISS.
    pub(crate) fn sequence(&self) -> u32 {
        self.header.sequence.offset_from(ISS)
    }

    /// SEG.ACK counted from the peer's IRS.
    pub(crate) fn acknowledgment(&self) -> u32 {
        self.header.acknowledgment.offset_from(IRS)
    }
}

pub(crate) fn parse_all(batch: &Multidata) -> Vec<Sent> {
    batch
        .packets()
        .map(|packet| {
            let (header, len) = TcpHeader::parse(packet.header()).expect("well formed");
            assert_eq!(len, packet.header().len());
            let payload = packet.payload().collect::<Vec<_>>().concat();
            let (run, ecn) = (packet.attributes().run, packet.attributes().ecn);
            Sent { header, payload, run, ecn }
        })
        .collect()
}

pub(crate) fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

/// Bytes that tell where in the stream they belong.
pub(crate) fn stream(range: core::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| (at ^ (at >> 8).wrapping_mul(31)) as u8).collect()
}

/// Without anything that scripts would have to repeat in every line.
pub(crate) fn plain_config() -> Config {
    Config {
        timestamps: false,
        sack: false,
        window_scaling: false,
        receive_buffer_bytes: 20_000,
        deferred_acks_max_local: 2,
        quick_acks: 0,
        ..Config::default()
    }
}

pub(crate) fn parameters(config: Config) -> Parameters {
    Parameters {
        local_port: LOCAL_PORT,
        remote_port: REMOTE_PORT,
        isn: ISS,
        timestamp_offset: 1_000,
        mss_default: crate::MSS_DEFAULT_IPV4,
        mss_receive: MSS as u16,
        mss_send_max: MSS as u16,
        on_same_subnet: true,
        config: config.into(),
    }
}

pub(crate) struct Harness {
    pub(crate) now: Instant,
    pub(crate) connection: Connection,
    pub(crate) pool: BlockPool,
    pub(crate) out: Multidata,
    /// Options of every segment from the peer.
    pub(crate) options: TcpOptions,
    pub(crate) window: u16,
    /// Whether segments from the peer carry a mark of congestion.
    pub(crate) marked: bool,
    sent: VecDeque<Sent>,
}

impl Harness {
    pub(crate) fn wrap(connection: Connection, now: Instant) -> Self {
        Self {
            now,
            connection,
            pool: BlockPool::new(PoolConfig::default()),
            out: Multidata::default(),
            options: TcpOptions::default(),
            window: 60_000,
            marked: false,
            sent: VecDeque::new(),
        }
    }

    pub(crate) fn connect(config: Config) -> Self {
        let now = Instant::from_millis(10_000);
        Self::wrap(Connection::connect(parameters(config), now), now)
    }

    /// An established connection, actively opened, with the peer's SYN options.
    pub(crate) fn established_with(config: Config, syn_options: TcpOptions) -> Self {
        let mut harness = Self::connect(config);
        let syn = harness.expect_one();
        assert_eq!(syn.header.flags, SYN);
        harness.options = syn_options;
        harness.receive(SYN | ACK, 0, 1, b"");
        harness.options =
            TcpOptions { timestamps: syn_options.timestamps, ..TcpOptions::default() };
        assert_eq!(harness.connection.state(), State::Established);
        let ack = harness.expect_one();
        assert_eq!((ack.header.flags, ack.sequence(), ack.acknowledgment()), (ACK, 1, 1));
        harness.connection.take_events();
        harness
    }

    pub(crate) fn established(config: Config) -> Self {
        let options = TcpOptions { mss: Some(MSS as u16), ..TcpOptions::default() };
        Self::established_with(config, options)
    }

    pub(crate) fn header(&self, flags: TcpFlags, sequence: u32, ack: u32) -> TcpHeader {
        TcpHeader {
            source_port: REMOTE_PORT,
            destination_port: LOCAL_PORT,
            sequence: IRS + sequence,
            acknowledgment: ISS + ack,
            flags,
            window: self.window,
            urgent: 0,
            options: self.options,
        }
    }

    /// A segment from the peer, alone in its batch; numbers count from the initial ones.
    pub(crate) fn try_receive(
        &mut self,
        flags: TcpFlags,
        sequence: u32,
        ack: u32,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let header = self.header(flags, sequence, ack);
        let outcome = self.receive_header(&header, payload);
        self.connection.on_batch_end(self.now);
        outcome
    }

    pub(crate) fn receive_header(
        &mut self,
        header: &TcpHeader,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let segment = Segment {
            header,
            payload: Some(chunk(payload)),
            sparse: false,
            segment_len: 0,
            congestion_experienced: self.marked,
        };
        self.connection.on_segment(self.now, segment, &self.pool)
    }

    pub(crate) fn receive(&mut self, flags: TcpFlags, sequence: u32, ack: u32, payload: &[u8]) {
        self.try_receive(flags, sequence, ack, payload).expect("not dropped");
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.connection.append(self.now, chunk(bytes)).expect("room");
    }

    pub(crate) fn read(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let count = self.connection.read(&mut out).expect("no error");
        out.truncate(count);
        out
    }

    /// Sends all that the connection wants to send, in batches of what the device is set to take.
    pub(crate) fn flush(&mut self) {
        loop {
            let wants = self.connection.wants_transmit(self.now);
            self.out.clear();
            let count = self.connection.poll_transmit(self.now, &mut self.out);
            assert_eq!(wants, count > 0, "wants_transmit and poll_transmit agree");
            if count == 0 {
                return;
            }
            assert_eq!(count, self.out.len());
            self.connection.on_transmitted(self.now, count);
            self.sent.extend(parse_all(&self.out));
        }
    }

    /// Everything sent since the last call.
    pub(crate) fn take(&mut self) -> Vec<Sent> {
        self.flush();
        self.sent.drain(..).collect()
    }

    pub(crate) fn expect_one(&mut self) -> Sent {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    pub(crate) fn expect_nothing(&mut self) {
        let sent = self.take();
        assert!(sent.is_empty(), "{sent:?}");
    }

    /// Sequence numbers (from our ISS) and lengths of everything sent.
    pub(crate) fn take_ranges(&mut self) -> Vec<(u32, usize)> {
        self.take().iter().map(|sent| (sent.sequence(), sent.payload.len())).collect()
    }

    /// Lets time pass, deadlines included.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(deadline) = self.connection.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(deadline);
            self.connection.on_timeout(self.now);
            self.flush();
        }
        self.now = end;
    }

    /// Goes to the next deadline and handles it.
    pub(crate) fn pass_to_deadline(&mut self) -> Duration {
        let deadline = self.connection.poll_timeout().expect("a timer runs");
        let waited = deadline - self.now;
        self.now = self.now.max(deadline);
        self.connection.on_timeout(self.now);
        waited
    }

    pub(crate) fn batch_limit(&mut self, packets: usize) {
        self.out = Multidata::default();
        self.out.set_limits(Limits { packets, ..Limits::default() });
    }
}
