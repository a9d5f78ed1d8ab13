//! A DHCP client, and servers that say what they like.
//!
//! What must hold: the client comes to rest, what it configures is an address with a network, nothing is
//! taken back that was neither configured nor checked, and the lease it tells of is the one it had configured.

use crate::input::Input;
use core::net::Ipv4Addr;
use dhcp::{Action, Client, ClientConfig};
use time::{Duration, Instant, Jitter};
use wire::HardwareAddress;

/// Deeds in one input.
const DEEDS_MAX: usize = 200;

/// Steps at one moment after which a client is taken to run in circles.
const STEPS_MAX: usize = 20;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

struct World<'a> {
    input: Input<'a>,
    now: Instant,
    jitter: Jitter,
    client: Client,
    /// The last message sent.
    asked: Vec<u8>,
    configured: Option<Ipv4Addr>,
    /// The address that is being checked.
    checked: Option<Ipv4Addr>,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let mut jitter = Jitter::new(settings.into());
    let now = Instant::from_millis(1_000);
    let config = ClientConfig {
        wanted: (settings & 1 != 0).then_some(Ipv4Addr::new(10, 0, 0, 7)),
        host_name: (settings & 2 != 0).then(|| "host".repeat(usize::from(settings))),
        ..ClientConfig::default()
    };
    let client = Client::new(now, config, HardwareAddress(STATION), &mut jitter);
    let (asked, configured, checked) = (Vec::new(), None, None);
    let mut world = World { input, now, jitter, client, asked, configured, checked };
    world.settle();
    for _ in 0..DEEDS_MAX {
        if world.input.is_empty() {
            break;
        }
        world.deed();
        world.settle();
    }
}

impl World<'_> {
    fn deed(&mut self) {
        match self.input.byte() % 12 {
            0..=4 => {
                let answer = self.answer();
                self.client.on_message(self.now, &answer, &mut self.jitter);
            }
            5 => {
                let message = self.input.short_part();
                self.client.on_message(self.now, message, &mut self.jitter);
            }
            6 => self.now += Duration::from_millis(u64::from(self.input.word())),
            7 | 8 => self.now += Duration::from_secs(u64::from(self.input.word())),
            9 if self.checked.take().is_some() => match self.input.byte() & 3 {
                0 => self.client.on_conflict(self.now, &mut self.jitter),
                _ => self.client.on_checked(),
            },
            9 | 10 => {
                let station = HardwareAddress(STATION);
                self.client.on_new_link(self.now, station, &mut self.jitter);
            }
            _ => self.client.release(self.now, &mut self.jitter),
        }
    }

    /// An answer to what was asked last, whose options are the input's.
    fn answer(&mut self) -> Vec<u8> {
        let mut message = vec![0; 236];
        message[..4].copy_from_slice(&[2, 1, 6, 0]);
        if let Some(transaction) = self.asked.get(4..8) {
            message[4..8].copy_from_slice(transaction);
        }
        message[16..20].copy_from_slice(&[10, 0, 0, self.input.byte()]);
        message[28..34].copy_from_slice(&STATION);
        message.extend([99, 130, 83, 99]);
        let kind = [2, 5, 5, 6][usize::from(self.input.byte() & 3)];
        message.extend([53, 1, kind, 54, 4, 10, 0, 0, 1]);
        let lease_s = u32::from(self.input.word()) << (self.input.byte() & 16);
        message.extend([51, 4]);
        message.extend(lease_s.to_be_bytes());
        message.extend([1, 4, 255, 255, 255, 0]);
        message.extend(self.input.short_part());
        message.push(255);
        message
    }

    /// Does what is due, and what the client asks for.
    fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.client.poll_timeout().is_some_and(|due| due <= self.now) {
                self.client.on_timeout(self.now, &mut self.jitter);
            } else if let Some(action) = self.client.poll_action() {
                self.act(action);
            } else {
                if let Some(lease) = self.client.lease() {
                    assert_eq!(Some(lease.address), self.configured, "{lease:?}");
                }
                return;
            }
        }
        panic!("the client does not come to rest");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send(packet) => {
                let source = packet.source;
                assert!(source.is_unspecified() || Some(source) == self.configured, "{packet:?}");
                self.asked = packet.payload;
            }
            Action::Check(lease) => self.checked = Some(lease.address),
            Action::TooShort(..) => {}
            Action::Configure(lease) => {
                assert!((1..=32).contains(&lease.prefix_len), "{lease:?}");
                assert!(lease.mtu_bytes.is_none_or(|mtu_bytes| mtu_bytes >= 576), "{lease:?}");
                let address = lease.address;
                assert!(!address.is_unspecified() && !address.is_broadcast(), "{lease:?}");
                self.configured = Some(address);
            }
            Action::Deconfigure(address) => {
                // Also where its check is under way, whose outcome then nobody asks for.
                let known = [self.configured.take(), self.checked.take()];
                assert!(known.contains(&Some(address)), "{address} of {known:?}");
            }
        }
    }
}
