//! Congestion control: how many bytes may be in the network at once.
//!
//! A controller owns the congestion window and the slow start threshold and nothing else. It is
//! told what happened ([`Congestion`]'s `on_*`) and asked for [`Congestion::window`]; when to
//! retransmit, what is lost and how much is in flight ([`crate::sender::sent`]) is decided elsewhere.
//! During recovery the window is the target that `pipe` is held against (RFC 6675, 5): it is not
//! inflated by duplicate ACKs, and ACKs do not grow it.
//!
//! ```text
//!            on_ack                on_loss                      on_recovery_exit
//!  slow start ----> avoidance ------------------> recovery --------------------> avoidance
//!      ^                |            on_timeout       |
//!      +----------------+-----------------------------+
//! ```
//!
//! What always holds: the window is at least one segment, at least two except after a timeout or a
//! lost SYN, and never above the cap; a reduction is made once per recovery.
//!
//! # Growth and stretch ACKs
//!
//! Batching makes ACKs that cover many segments the rule, so growth counts bytes, not ACKs
//! (RFC 3465). In congestion avoidance that is exact. In slow start RFC 3465 bounds the growth per
//! ACK by L = 2 segments, to bound the burst it releases; under ACKs of eight segments that turns
//! doubling per round trip into a quarter more, and the burst is what the batch is for. So by
//! default slow start grows by the bytes acknowledged, as if each segment had had its ACK (RFC 5681,
//! 3.1), and [`CongestionConfig::slow_start_limit_segments`] sets L for those who want the letter.
//! RFC 3465, 2.3 also demands L = 1 after a timeout, because one ACK may then cover data that left
//! the network long ago. That is true of the data in flight at the timeout, and for as many bytes
//! L is 1; from there on the usual limit holds.

use core::str::FromStr;

use crate::sender::rate::RateSample;
use time::{Duration, Instant};
use wire::SeqNumber;

mod bbr;
mod cubic;
mod hystart;
mod newreno;
mod usage;
mod window;

pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;
pub(crate) use newreno::NewReno;
pub(crate) use usage::WindowUse;
use window::Window;

/// An ACK that delivered something: it moved `SND.UNA`, or SACK blocks reported something new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// When it arrived.
    pub(crate) now: Instant,
    /// By how many bytes it moved `SND.UNA`; 0 where only SACK blocks were new.
    pub(crate) acked_bytes: u32,
    /// Bytes in flight before it arrived.
    pub(crate) in_flight_before: u32,
    /// Whether the sender left the window unused for want of data or of receive window. A window
    /// that was not used was not tested, and must not grow (RFC 7661; RFC 9438, 5.8).
    pub(crate) app_limited: bool,
    /// The smoothed round-trip time, if there is one.
    pub(crate) rtt: Option<Duration>,
    /// The round trip that this ACK measured, if it measured one.
    pub(crate) rtt_sample: Option<Duration>,
    /// `SND.UNA` behind this ACK.
    pub(crate) una: SeqNumber,
    /// `SND.NXT`.
    pub(crate) nxt: SeqNumber,
    /// What this ACK tells of the rate of the path ([`crate::sender::rate`]); loss-based controllers need
    /// none.
    pub(crate) rate: Option<RateSample>,
    /// Whether the peer sends SACK blocks.
    pub(crate) sack: bool,
    /// The sender's segment size (SMSS).
    pub(crate) mss: u32,
}

/// A congestion controller. Windows and thresholds are in bytes.
pub(crate) trait Congestion {
    /// The congestion window.
    fn window(&self) -> u32;

    /// `ssthresh`; `u32::MAX` until the first reduction.
    fn slow_start_threshold(&self) -> u32;

    /// New data was acknowledged. Does nothing between `on_loss` and `on_recovery_exit`.
    fn on_ack(&mut self, acked: &Acked);

    /// Data begins to flow while nothing was in flight. The idle time is not held for growth. `app_limited`: it was
    /// the application that had nothing to send, and not the peer's window that was full.
    fn on_flight_start(&mut self, now: Instant, app_limited: bool);

    /// Fast retransmit begins (RFC 5681, 3.2; RFC 6675, 5): reduces the threshold and the window.
    /// `in_flight` is FlightSize, everything sent and not acknowledged; what of it lies beyond the window does not
    /// count.
    fn on_loss(&mut self, now: Instant, in_flight: u32, mss: u32);

    /// The network marked a segment (RFC 3168, 6.1.2): as [`Congestion::on_loss`], with nothing to
    /// send again; [`Congestion::on_recovery_exit`] follows one round trip later.
    fn on_mark(&mut self, now: Instant, in_flight: u32, mss: u32);

    /// The retransmission timer went off for a segment that had not been retransmitted by the timer
    /// before (RFC 5681, 3.1: the threshold MUST NOT change for its second timeout): the window
    /// becomes the loss window of one segment.
    fn on_timeout(&mut self, now: Instant, in_flight: u32, mss: u32);

    /// The timer went off again, and nothing was acknowledged between: the window is one segment, whatever
    /// blocks of SACK have made of it since, or another controller began with.
    fn on_timeout_again(&mut self);

    /// Everything sent before the loss was noticed is acknowledged.
    fn on_recovery_exit(&mut self, now: Instant);

    /// The last reduction was a mistake (Eifel, F-RTO, DSACK): what was before it comes back,
    /// unless the window is larger by now. A second call does nothing.
    fn on_undo(&mut self);

    /// Sending starts again after `silence`, which is longer than `rto`. See [`Idle`].
    fn on_idle(&mut self, silence: Duration, rto: Duration, mss: u32);

    /// For a whole RTO no more than `used_bytes` were in flight although the window had room.
    fn on_unused(&mut self, used_bytes: u32);

    /// The SYN or its ACK was lost: the initial window MUST be one segment (RFC 5681, 3.1).
    fn on_handshake_loss(&mut self, mss: u32);

    /// The smoothed round trip, known before any data was sent under this controller: by the handshake, or by
    /// what was sent under another.
    fn on_round_trip(&mut self, _now: Instant, _rtt: Duration) {}

    /// The segment size changed, as path MTU discovery does. A smaller one leaves the number of
    /// segments in the window as it was (RFC 3390, 2), a larger one the number of bytes.
    fn on_mss_change(&mut self, mss: u32);

    /// Whether the window holds in fast recovery as it stands, instead of what proportional rate
    /// reduction makes of it (RFC 9937).
    fn governs_recovery(&self) -> bool {
        false
    }

    /// The rate at which to send, in bytes per second, where the controller has one of its own;
    /// others are paced by their window ([`crate::sender::pacing`]).
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// The controller keeps the pipe empty on purpose: what is sent now tells nothing of the path
    /// ([`crate::sender::rate::DeliveryRate::on_app_limited`]).
    fn is_holding_back(&self) -> bool {
        false
    }
}

/// Which algorithm a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Version 3, as draft-ietf-ccwg-bbr has it.
    Bbr,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::NewReno, Self::Bbr];

    /// The name in statistics and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Linux's name of it.
    #[must_use]
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::NewReno => "reno",
            Self::Cubic | Self::Bbr => self.name(),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    /// An algorithm by its [`name`](Self::name).
    ///
    /// # Errors
    /// A sentence that says which algorithms there are.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no such congestion control; there are {names}")
        })
    }
}

/// For how long a window that nobody has used may be taken for one that fits (RFC 7661, 4.4).
pub(crate) const NON_VALIDATED_PERIOD: Duration = Duration::from_secs(300);

/// What becomes of a window that was not used, because nothing was sent for longer than the
/// retransmission timeout, or for as long never as much as it allows.
///
/// It says what the path took once and nothing of what it takes now. RFC 5681, 4.1 starts again
/// from the initial window; RFC 2861 halves the window for every timeout of silence and remembers
/// three quarters of it in the threshold, so that a short pause costs little and a long one as much
/// as a restart. Linux does the latter and so do we. RFC 7661, which made RFC 2861 historic, keeps
/// the window for five minutes but wants a measure of what was used, and half the window taken back
/// at the first loss. All of it is not here: what it gains over RFC 2861 is the time after pauses of a few
/// timeouts, and those who want that can have [`Idle::Keep`], behind pacing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// RFC 2861, except that on a path on which a round trip has taken less than a millisecond the
    /// window outlives five minutes of silence, as RFC 7661 has it everywhere; one that is used in part
    /// is still taken back. There the timeout is several hundred round trips, nothing is paced, and a
    /// turn of 64 KiB bounds the burst anyway; slow start would be gone through again by each write of
    /// one of ten thousand connections that share a link, for every one of them is silent for longer
    /// than that between two of its turns.
    #[default]
    Decay,
    /// RFC 5681, 4.1.
    Restart,
    /// The window stays as it is.
    Keep,
}

/// How a controller begins and how far it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The initial window: `min(n * MSS, max(2 * MSS, n * 1460))` (RFC 6928, 2, with n = 10).
    pub initial_window_segments: u32,
    /// The largest window. 1 GiB by default, as no receive window is larger (RFC 7323, 2.3).
    pub window_cap_bytes: u32,
    /// RFC 3465's L; none by default, see the module.
    pub slow_start_limit_segments: Option<u32>,
    /// HyStart++ (RFC 9406) in the first slow start; on by default.
    pub hystart: bool,
    /// What becomes of an unused window.
    pub idle: Idle,
}

/// The initial window of so many segments of `mss` bytes (RFC 6928, 2).
fn initial_window_bytes(segments: u32, mss: u32) -> u32 {
    let segments = segments.max(1);
    let by_bytes = segments.saturating_mul(1460).max(mss.saturating_mul(2));
    mss.saturating_mul(segments).min(by_bytes)
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            initial_window_segments: 10,
            window_cap_bytes: 1 << 30,
            slow_start_limit_segments: None,
            hystart: true,
            idle: Idle::default(),
        }
    }
}

/// The controller of a connection: one of the algorithms, without a box.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    /// See [`NewReno`].
    NewReno(NewReno),
    /// See [`Cubic`].
    Cubic(Cubic),
    /// See [`Bbr`]; in a box, as it is several times as long as the others.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// A controller as `config` says, for segments of `mss` bytes.
    pub(crate) fn new(config: &CongestionConfig, mss: u32) -> Self {
        match config.algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(config, mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(config, mss)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(config, mss))),
        }
    }
}

macro_rules! dispatch {
    ($controller:expr, $inner:ident => $call:expr) => {
        match $controller {
            Controller::NewReno($inner) => $call,
            Controller::Cubic($inner) => $call,
            Controller::Bbr($inner) => $call,
        }
    };
}

impl Congestion for Controller {
    fn window(&self) -> u32 {
        dispatch!(self, inner => inner.window())
    }

    fn slow_start_threshold(&self) -> u32 {
        dispatch!(self, inner => inner.slow_start_threshold())
    }

    fn on_ack(&mut self, acked: &Acked) {
        dispatch!(self, inner => inner.on_ack(acked));
    }

    fn on_flight_start(&mut self, now: Instant, app_limited: bool) {
        dispatch!(self, inner => inner.on_flight_start(now, app_limited));
    }

    fn on_loss(&mut self, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, inner => inner.on_loss(now, in_flight, mss));
    }

    fn on_timeout(&mut self, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, inner => inner.on_timeout(now, in_flight, mss));
    }

    fn on_timeout_again(&mut self) {
        dispatch!(self, inner => inner.on_timeout_again());
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        dispatch!(self, inner => inner.on_recovery_exit(now));
    }

    fn on_undo(&mut self) {
        dispatch!(self, inner => inner.on_undo());
    }

    fn on_mark(&mut self, now: Instant, in_flight: u32, mss: u32) {
        dispatch!(self, inner => inner.on_mark(now, in_flight, mss));
    }

    fn on_idle(&mut self, silence: Duration, rto: Duration, mss: u32) {
        dispatch!(self, inner => inner.on_idle(silence, rto, mss));
    }

    fn on_unused(&mut self, used_bytes: u32) {
        dispatch!(self, inner => inner.on_unused(used_bytes));
    }

    fn on_handshake_loss(&mut self, mss: u32) {
        dispatch!(self, inner => inner.on_handshake_loss(mss));
    }

    fn on_round_trip(&mut self, now: Instant, rtt: Duration) {
        dispatch!(self, inner => inner.on_round_trip(now, rtt));
    }

    fn on_mss_change(&mut self, mss: u32) {
        dispatch!(self, inner => inner.on_mss_change(mss));
    }

    fn governs_recovery(&self) -> bool {
        dispatch!(self, inner => inner.governs_recovery())
    }

    fn pacing_rate(&self) -> Option<u64> {
        dispatch!(self, inner => inner.pacing_rate())
    }

    fn is_holding_back(&self) -> bool {
        dispatch!(self, inner => inner.is_holding_back())
    }
}

#[cfg(test)]
mod tests;
