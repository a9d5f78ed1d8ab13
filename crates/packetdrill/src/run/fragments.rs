//! Fragments: which datagram a part is of, on the way in and on the way out.

use super::contents::compare;
use super::{Due, Runner};
use crate::check::check_ip;
use crate::fragment::{self, LiveFragment};
use crate::live::{Body, LivePacket, UDP, be16, decode, encode};
use crate::notation;
use crate::script::{Fragment, Packet, Transport};
use std::collections::HashMap;

/// The datagrams that are in parts, by the identification that the script gives them.
#[derive(Default)]
pub(super) struct InParts {
    /// Their lengths beside it: a whole one may have the identification of another.
    arriving: HashMap<(u32, usize), Vec<u8>>,
    /// The identifications of those that were sent.
    sent: HashMap<u32, u32>,
}

impl Runner<'_> {
    /// The payload of a datagram that arrives, of which a part may have arrived before.
    pub(super) fn arriving_payload(&mut self, part: Option<Fragment>, len: usize) -> Vec<u8> {
        let Some(part) = part else { return self.arriving_datagram(len) };
        if let Some(known) = self.in_parts.arriving.get(&(part.id, len)) {
            return known.clone();
        }
        let payload = self.arriving_datagram(len);
        self.in_parts.arriving.insert((part.id, len), payload.clone());
        payload
    }

    /// Waits for the fragment that the script expects, and compares it.
    pub(super) fn outbound_fragment(
        &mut self,
        packet: &Packet,
        part: Fragment,
        due: Due,
    ) -> Result<(), String> {
        let index = self.flow_for(packet)?;
        let expected = notation::script(packet);
        let limit_us = due.limit_us();
        let Some((at_us, found)) = self.next_fragment(index, limit_us)? else {
            return Err(format!("nothing was sent\nexpected: {expected}"));
        };
        let result = self.check_fragment(index, packet, part, &found).and_then(|()| {
            self.check_time("the packet", due, at_us)?;
            self.check_pending()
        });
        result.map_err(|why| {
            let was = notation::fragment(&found);
            format!("{why}\nexpected: {expected}\n     was: {was}  at {:.6} s", at_us as f64 / 1e6)
        })
    }

    /// The next fragment for the peer of a flow.
    fn next_fragment(
        &mut self,
        index: usize,
        limit_us: u64,
    ) -> Result<Option<(u64, LiveFragment)>, String> {
        let remote = self.flows[index].remote.ip();
        let mut others = std::mem::take(&mut self.unclaimed);
        let mut at = 0;
        let found = loop {
            if at == others.len() {
                match self.backend.next_packet(limit_us) {
                    Some(next) => others.push_back(next),
                    None => break Ok(None),
                }
            }
            let (at_us, bytes) = &others[at];
            match fragment::decode(bytes) {
                Ok(Some(found)) if found.destination == remote => break Ok(Some((*at_us, found))),
                Ok(Some(_)) => {}
                Ok(None) => match decode(bytes).map(|live| live.body) {
                    Ok(Body::Udp { payload, .. }) => {
                        break Err(format!("a whole datagram was sent: udp ({})", payload.len()));
                    }
                    _ => {
                        // Of another flow, perhaps.
                        at += 1;
                        continue;
                    }
                },
                Err(why) => break Err(format!("a packet that cannot be read was sent: {why}")),
            }
            others.remove(at);
        };
        if matches!(found, Ok(Some(_))) {
            others.remove(at);
        }
        self.unclaimed = others;
        found
    }

    fn check_fragment(
        &mut self,
        index: usize,
        packet: &Packet,
        part: Fragment,
        found: &LiveFragment,
    ) -> Result<(), String> {
        let (Transport::Udp(udp), UDP) = (&packet.transport, found.protocol) else {
            return Err("a fragment of another protocol".to_owned());
        };
        let flow = &mut self.flows[index];
        if flow.local.port() == 0 && found.offset == 0 && found.data.len() >= 2 {
            flow.local.set_port(be16(&found.data, 0));
        }
        if found.source != flow.local.ip() {
            return Err(format!("the source: expected {}, was {}", flow.local.ip(), found.source));
        }
        if found.is_whole {
            return Err("DF is set".to_owned());
        }
        check_ip(&packet.ip, found.class, found.ttl, found.flow_label)?;
        let wanted = (usize::from(part.len), usize::from(part.offset), part.more);
        if wanted != (found.data.len(), found.offset, found.more) {
            return Err("another part".to_owned());
        }
        let payload = self.sent.of_len(udp.len.into()).ok_or("no such datagram was written")?;
        let payload = payload.to_vec();
        self.check_content(index, &payload, found)?;
        self.check_identification(part.id, found.identification)?;
        // With the last part all of it has been seen.
        if part.more { Ok(()) } else { self.check_datagram(&payload) }
    }

    /// Whether a part is that of the whole: its bytes, and those of the header, which only one part has.
    fn check_content(
        &self,
        index: usize,
        payload: &[u8],
        found: &LiveFragment,
    ) -> Result<(), String> {
        let flow = &self.flows[index];
        let whole = encode(&LivePacket {
            source: flow.local.ip(),
            destination: flow.remote.ip(),
            class: found.class,
            ttl: found.ttl,
            flow_label: found.flow_label,
            is_whole: false,
            body: Body::Udp {
                source_port: flow.local.port(),
                destination_port: flow.remote.port(),
                payload: payload.to_vec(),
            },
        });
        let whole = fragment::payload(&whole);
        let end = whole.len().min(found.offset + found.data.len());
        let wanted = whole.get(found.offset..end).unwrap_or(&[]);
        compare("sent", found.offset as u32, wanted, &found.data)
    }

    /// All parts of a datagram have one identification, and no other datagram has it (RFC 791, 3.2; RFC 8200, 4.5).
    fn check_identification(&mut self, script: u32, live: u32) -> Result<(), String> {
        let sent = &mut self.in_parts.sent;
        match sent.get(&script) {
            Some(known) if *known == live => Ok(()),
            Some(known) => Err(format!("the identification: expected {known}, was {live}")),
            None if sent.values().any(|other| *other == live) => {
                Err(format!("the identification {live} is that of another datagram"))
            }
            None => {
                sent.insert(script, live);
                Ok(())
            }
        }
    }
}
