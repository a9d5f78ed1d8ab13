//! Echo requests to one host, several in a batch: round-trip times and loss.
//!
//! A round sends a batch in one call and listens until the next is due; the last round listens for as
//! long as a reply may take. The time of a request begins before the call that sends its batch, so with
//! larger batches it holds the time that the requests before it took, as a network card would see it.
//! A request before all others finds the neighbour, for whom a whole batch could not wait; it does not count.

use crate::statistics::median;
use crate::table::{cells, headed};
use crate::{Attempt, Failure};
use multidata::ip::IcmpErrorKind;
use multidata::{DropReason, EchoAnswer, RawPacket, RawSocket, Stack, echo_request};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The name of this layout.
pub const SCHEMA: &str = "multidata-ping/1";

/// The number of the request before all others, which none of these has.
const FIRST: u16 = u16::MAX;

/// What is said of replies that came and were not read.
const NO_ROOM: &str = "replies for which this end had no room, as it has with smaller batches";

/// So often it is asked whether to go on.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// What to ask.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whom.
    pub to: IpAddr,
    /// How many requests in all, each with a sequence number of its own.
    pub count: u16,
    /// How many of them in one batch.
    pub batch: u16,
    /// Time between two batches.
    pub interval: Duration,
    /// Data of each request.
    pub len_bytes: usize,
    /// How long replies to the last batch may take.
    pub patience: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Who was asked.
    pub to: String,
    /// Data of each request.
    pub len_bytes: usize,
    /// Requests asked for in one batch.
    pub batch: u16,
    /// Requests that were sent.
    pub sent: usize,
    /// Requests that were answered with their own data.
    pub received: usize,
    /// Further replies to them.
    pub duplicates: usize,
    /// Replies with other data.
    pub damaged: usize,
    /// ICMP errors about them, and replies that found this end's socket full: the sentence of each kind, and how many.
    pub errors: Vec<(String, usize)>,
    /// Packets of each batch that the device got, on average.
    pub packets_per_batch: f64,
    /// Round-trip times in the order of the requests; none of those without a reply.
    pub round_trips_us: Vec<f64>,
    /// The sequence numbers of requests without a reply, the last ones of an interrupted run included.
    pub lost: Vec<usize>,
}

/// A request that left.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    round_trip: Option<Duration>,
}

/// Asks, until all was asked or `goes_on` says no; what came of it until then is the result.
///
/// # Errors
/// A sentence: no route, too long, or the device failed. That nobody answers is a result.
pub fn ping(stack: &Stack, plan: &Plan, goes_on: &dyn Fn() -> bool) -> Result<Results, Failure> {
    let refused = || format!("cannot send echo requests to {}", plan.to);
    let socket = RawSocket::bind_echo(stack, 0).attempt(refused)?;
    let data: Vec<u8> = (0..plan.len_bytes).map(|at| at as u8).collect();
    let mut results = Results {
        schema: SCHEMA.to_owned(),
        to: plan.to.to_string(),
        len_bytes: plan.len_bytes,
        batch: plan.batch,
        ..Results::default()
    };
    socket.send_to(&echo_request(plan.to, FIRST, &[]), plan.to).attempt(refused)?;
    let mut first = [Asked { at: Instant::now(), round_trip: None }];
    let end = first[0].at + plan.patience;
    let listener = Listener { socket: &socket, goes_on };
    listener.listen(&[], end, (FIRST, true), &mut first, &mut Results::default())?;
    let mut asked: Vec<Asked> = Vec::with_capacity(plan.count.into());
    let before = stack.counters().device;
    let refused_before = refused_replies(stack);
    while asked.len() < usize::from(plan.count) && goes_on() {
        let first = asked.len() as u16;
        let last = plan.count.min(first.saturating_add(plan.batch.max(1)));
        let messages: Vec<_> = (first..last).map(|it| echo_request(plan.to, it, &data)).collect();
        let packets: Vec<_> =
            messages.iter().map(|payload| RawPacket { payload, to: plan.to }).collect();
        let at = Instant::now();
        let sent = socket.send_many(&packets).attempt(refused)?;
        asked.extend((0..sent).map(|_| Asked { at, round_trip: None }));
        let is_over = last == plan.count;
        let time = if is_over { plan.patience } else { plan.interval };
        listener.listen(&data, at + time, (0, is_over), &mut asked, &mut results)?;
    }
    let after = stack.counters().device;
    let batches = (after.transmit_batches - before.transmit_batches).max(1);
    let packets = after.transmit_packets - before.transmit_packets;
    results.packets_per_batch = packets as f64 / batches as f64;
    // Nobody else lost them.
    match refused_replies(stack) - refused_before {
        0 => {}
        count => results.errors.push((NO_ROOM.to_owned(), count as usize)),
    }
    results.sent = asked.len();
    let round_trips = asked.iter().filter_map(|it| it.round_trip);
    results.round_trips_us = round_trips.map(|it| it.as_nanos() as f64 / 1e3).collect();
    results.received = results.round_trips_us.len();
    let lost = asked.iter().enumerate().filter(|(_, it)| it.round_trip.is_none());
    results.lost = lost.map(|(number, _)| number).collect();
    Ok(results)
}

/// Packets that found a socket of the stack full: here they are replies to a batch that is larger than what a socket
/// holds unread.
fn refused_replies(stack: &Stack) -> u64 {
    stack.counters().stack.drops.count(DropReason::SocketQueueFull)
}

/// Takes replies in.
struct Listener<'a> {
    socket: &'a RawSocket,
    goes_on: &'a dyn Fn() -> bool,
}

impl Listener<'_> {
    /// Takes replies to the requests from number `first` on in until `end`, or until all are there where nothing
    /// else is to be done.
    fn listen(
        &self,
        data: &[u8],
        end: Instant,
        (first, is_over): (u16, bool),
        asked: &mut [Asked],
        results: &mut Results,
    ) -> Result<(), Failure> {
        // Whatever may answer, the request quoted in an error included.
        let mut buffer = vec![0; data.len() + 2_048];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let all_are_there = is_over && asked.iter().all(|it| it.round_trip.is_some());
            if left.is_zero() || all_are_there || !(self.goes_on)() {
                return Ok(());
            }
            let failed = || "cannot receive echo replies".to_owned();
            self.socket.set_read_timeout(Some(left.min(LOOK_PERIOD))).attempt(failed)?;
            let packet = match self.socket.recv(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                outcome => outcome.attempt(failed)?,
            };
            let now = Instant::now();
            match EchoAnswer::parse(&packet, &buffer[..packet.len]) {
                Some(EchoAnswer::Reply { sequence, data: theirs }) => {
                    let number = usize::from(sequence.wrapping_sub(first));
                    let Some(request) = asked.get_mut(number) else { continue };
                    match request.round_trip {
                        _ if theirs != data => results.damaged += 1,
                        Some(_) => results.duplicates += 1,
                        None => request.round_trip = Some(now - request.at),
                    }
                }
                Some(EchoAnswer::Error { kind, .. }) => results.count_error(sentence(kind)),
                None => {}
            }
        }
    }
}

fn sentence(kind: IcmpErrorKind) -> &'static str {
    match kind {
        IcmpErrorKind::NetUnreachable => "network unreachable",
        IcmpErrorKind::HostUnreachable => "host unreachable",
        IcmpErrorKind::Prohibited => "prohibited",
        IcmpErrorKind::PacketTooBig { .. } => "packet too big",
        IcmpErrorKind::TimeExceeded => "time exceeded",
        IcmpErrorKind::ReassemblyTimeExceeded => "fragments missing",
        _ => "refused",
    }
}

impl Results {
    fn count_error(&mut self, sentence: &str) {
        match self.errors.iter_mut().find(|(its, _)| its == sentence) {
            Some((_, count)) => *count += 1,
            None => self.errors.push((sentence.to_owned(), 1)),
        }
    }

    /// Requests without a reply, of a hundred.
    #[must_use]
    pub fn loss_percent(&self) -> f64 {
        100.0 * (self.sent - self.received) as f64 / self.sent.max(1) as f64
    }

    /// The longest of so many of a hundred round-trip times, in microseconds.
    #[must_use]
    pub fn percentile_us(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.round_trips_us.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(at).copied()
    }

    /// The table: one row.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = headed([
            "sent",
            "received",
            "loss %",
            "packets\n/batch",
            "least\nus",
            "median\nus",
            "p99\nus",
            "most\nus",
        ]);
        let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1}"));
        let figures = [
            self.sent.to_string(),
            self.received.to_string(),
            format!("{:.1}", self.loss_percent()),
            format!("{:.1}", self.packets_per_batch),
            us(self.percentile_us(0)),
            us(median(&self.round_trips_us)),
            us(self.percentile_us(99)),
            us(self.percentile_us(100)),
        ];
        table.add_row(cells::<String>([], figures));
        table.to_string()
    }

    /// What the table does not say, a line each.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> =
            self.errors.iter().map(|(sentence, count)| format!("{sentence}: {count}")).collect();
        for (count, what) in
            [(self.duplicates, "replies came again"), (self.damaged, "replies had other data")]
        {
            if count > 0 {
                remarks.push(format!("{count} {what}"));
            }
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use multidata::InterfaceConfig;
    use multidata::device::{Medium, WireConfig, WireEnd, wire};

    fn stacks() -> (Stack, Stack) {
        let end = WireEnd::plain(Medium::Ip);
        let (left, right) = wire(WireConfig::new(end, end));
        let stack = |queue, address: &str| {
            let config = InterfaceConfig::new(address.parse().expect("an address"));
            Stack::builder().interface(queue, config).build().expect("a stack")
        };
        (stack(left, "10.0.0.1/24"), stack(right, "10.0.0.2/24"))
    }

    fn plan(to: &str, count: u16, batch: u16) -> Plan {
        Plan {
            to: to.parse().expect("an address"),
            count,
            batch,
            interval: Duration::from_millis(1),
            len_bytes: 56,
            patience: Duration::from_secs(5),
        }
    }

    #[test]
    fn every_request_has_its_time_and_batches_are_full() {
        let (left, _right) = stacks();
        let results = ping(&left, &plan("10.0.0.2", 100, 20), &|| true).expect("a route");
        assert_eq!((results.sent, results.received, results.loss_percent()), (100, 100, 0.0));
        assert!(results.packets_per_batch > 15.0, "{}", results.packets_per_batch);
        let [median, p99] = [50, 99].map(|it| results.percentile_us(it).expect("replies"));
        assert!(median > 0.0 && median <= p99);
        assert!(results.table().contains("100"));
        let json = crate::results::to_json(&results).expect("JSON");
        assert_eq!(serde_json::from_str::<Results>(&json).expect("as written"), results);
    }

    #[test]
    fn replies_that_this_end_drops_are_not_left_to_the_host() {
        let (left, _right) = stacks();
        let large = Plan {
            len_bytes: 1_400,
            patience: Duration::from_secs(1),
            ..plan("10.0.0.2", 2_000, 2_000)
        };
        let results = ping(&left, &large, &|| true).expect("a route");
        assert!(results.received < results.sent, "a socket holds fewer");
        let [(sentence, count)] = &results.errors[..] else { panic!("{:?}", results.errors) };
        assert_eq!((sentence.as_str(), *count), (NO_ROOM, results.lost.len()));
        assert!(results.remarks()[0].contains(NO_ROOM));
    }

    #[test]
    fn nobody_is_a_result_and_no_route_is_not() {
        let (left, _right) = stacks();
        let patience = Duration::from_millis(20);
        let results =
            ping(&left, &Plan { patience, ..plan("10.0.0.3", 3, 1) }, &|| true).expect("a route");
        assert_eq!((results.sent, results.received, results.loss_percent()), (3, 0, 100.0));
        assert_eq!(results.lost, [0, 1, 2]);
        assert!(results.table().contains('-'));
        assert!(ping(&left, &plan("192.0.2.1", 3, 1), &|| true).is_err());
    }

    #[test]
    fn what_came_before_an_interruption_is_the_result() {
        let (left, _right) = stacks();
        let asked = std::cell::Cell::new(0);
        // Some replies are in by the time that this many looks were taken.
        let goes_on = || asked.replace(asked.get() + 1) < 40;
        let results = ping(&left, &plan("10.0.0.2", 60_000, 1), &goes_on).expect("a route");
        assert!(results.sent > 0 && results.sent < 60_000, "{}", results.sent);
        assert_eq!(results.received + results.lost.len(), results.sent);
    }
}
