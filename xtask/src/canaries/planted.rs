//! The mistakes that are planted, one at a time, and who must find each.

/// Who must find a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finder {
    /// The simulator, within some thousand seeds.
    Simulator,
    /// The fuzz body of this name, over its corpus and mutations.
    Fuzzer(&'static str),
    /// Unit tests: a package and a filter.
    Unit(&'static str, &'static str),
}

/// A mistake.
pub(super) struct Planted {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    /// Stands in the file exactly once.
    pub(super) original: &'static str,
    pub(super) mistake: &'static str,
    pub(super) finder: Finder,
}

/// All of them; the first ones are the sample that `cargo xtask test` takes.
pub(super) const PLANTED: &[Planted] = &[
    Planted {
        name: "checksum-not-verified",
        file: "crates/stack/src/ingress.rs",
        original: "if ip::transport_checksum_ok(self.info, bytes) { Ok(()) } else { Err(wrong) }",
        mistake: "if ip::transport_checksum_ok(self.info, bytes) || bytes.len() > 60 { Ok(()) } else { Err(wrong) }",
        finder: Finder::Simulator,
    },
    Planted {
        name: "parser-length-unchecked",
        file: "crates/wire/src/tcp.rs",
        original: "let options = rest.get(..options_len).ok_or(Malformed::Truncated)?;",
        mistake: "let options = &rest[..options_len];",
        finder: Finder::Fuzzer("transport"),
    },
    Planted {
        name: "window-off-by-a-few",
        file: "crates/tcp/src/sender/sequence.rs",
        original: "(self.una + self.window).distance(nxt).max(0).cast_unsigned()",
        mistake: "(self.una + self.window + 2).distance(nxt).max(0).cast_unsigned()",
        finder: Finder::Simulator,
    },
    Planted {
        name: "window-by-the-letter",
        file: "crates/tcp/src/sender/sequence.rs",
        original: "self.wl2.is_before(ack) || (self.wl2 == ack && self.wl1.is_at_or_before(sequence));",
        mistake: "self.wl1.is_before(sequence) || (self.wl1 == sequence && self.wl2.is_at_or_before(ack));",
        finder: Finder::Simulator,
    },
    Planted {
        name: "acknowledgment-of-what-was-not-sent",
        file: "crates/tcp/src/sender/mod.rs",
        original: "!too_old && !ack.is_after(self.sequence.max)",
        mistake: "!too_old",
        finder: Finder::Fuzzer("segments"),
    },
    Planted {
        name: "retransmission-of-the-wrong-byte",
        file: "crates/tcp/src/sender/queue.rs",
        original: "let position = self.base + ahead;",
        mistake: "let position = self.base + ahead + u64::from(ahead > 0 && ahead.is_multiple_of(7));",
        finder: Finder::Simulator,
    },
    Planted {
        name: "fin-not-sent-again",
        file: "crates/tcp/src/output/mod.rs",
        original: "Self::one(kind, again.sequence, len, len < again.len)",
        mistake: "Self::one(kind, again.sequence, len, false)",
        finder: Finder::Simulator,
    },
    Planted {
        name: "no-persist-timer",
        file: "crates/tcp/src/timeouts.rs",
        original: "        if self.sender.sequence.flight() == 0 && self.sender.unsent_len() > 0 {\n            self.await_window(now);",
        mistake: "        if self.sender.sequence.flight() == 0 && self.sender.sequence.flight() > 0 {\n            self.await_window(now);",
        finder: Finder::Simulator,
    },
    Planted {
        name: "block-leaked",
        file: "crates/stack/src/ingress.rs",
        original: "        batch.clear();",
        mistake: "        core::mem::forget(core::mem::take(batch));",
        finder: Finder::Simulator,
    },
    Planted {
        name: "writable-not-told",
        file: "crates/tcp/src/input/acknowledgment.rs",
        original: "            self.events.insert(Events::WRITABLE);",
        mistake: "",
        finder: Finder::Simulator,
    },
    Planted {
        name: "sequence-numbers-without-wrap",
        file: "crates/wire/src/seq.rs",
        original: "        self.distance(other) < 0\n",
        mistake: "        self.0 < other.0\n",
        finder: Finder::Simulator,
    },
    Planted {
        name: "timeout-does-not-back-off",
        file: "crates/tcp/src/sender/rtt.rs",
        original: "let factor = 1_u32.checked_shl(self.backoff_count).unwrap_or(u32::MAX);",
        mistake: "let factor = 1_u32;",
        finder: Finder::Simulator,
    },
    Planted {
        name: "syn-cookies-are-neighbours",
        file: "crates/tcp/src/syn_cookie.rs",
        original: "const INDEX_SHIFT: u32 = 21;",
        mistake: "const INDEX_SHIFT: u32 = 0;",
        finder: Finder::Simulator,
    },
    Planted {
        name: "half-open-window-not-scaled",
        file: "crates/tcp/src/half_open.rs",
        original: "window: syn_ack.window >> shift,",
        mistake: "window: syn_ack.window | u16::from(shift > 20),",
        finder: Finder::Simulator,
    },
    Planted {
        // What RFC 793 said in one of two places, and 4.2BSD did (RFC 6093, 2.2 and 3.1).
        name: "urgent-pointer-names-the-last-byte",
        file: "crates/tcp/src/urgent.rs",
        original: "self.urgent.on_append(self.sender.queue.end_sequence());",
        mistake: "self.urgent.on_append(self.sender.queue.end_sequence() - 1);",
        finder: Finder::Simulator,
    },
    Planted {
        name: "connections-survive-their-address",
        file: "crates/stack/src/network/rerouting.rs",
        original: "None => socket.connection.on_address_removed(),",
        mistake: "None => {}",
        finder: Finder::Simulator,
    },
    Planted {
        name: "a-taken-address-is-kept",
        file: "crates/link/src/claim.rs",
        original: "        if self.is_probing() {\n            return Dispute::Lost;\n        }\n",
        mistake: "",
        finder: Finder::Simulator,
    },
    Planted {
        name: "fast-open-cookie-not-checked",
        file: "crates/stack/src/connections/fast_open_keys.rs",
        original: "cookie(key, local, remote) == shown.cookie()",
        mistake: "cookie(key, local, remote).len() == shown.cookie().len()",
        finder: Finder::Simulator,
    },
    Planted {
        // It was there (RFC 9293, 3.8.6).
        name: "fast-open-window-goes-back",
        file: "crates/tcp/src/output/stamp.rs",
        original: "true => self.receiver.queue.window() as usize,",
        mistake: "true => self.receiver.queue.capacity(),",
        finder: Finder::Simulator,
    },
    Planted {
        name: "last-segment-wins-ahead-of-its-turn",
        file: "crates/tcp/src/receiver/assembler.rs",
        original: "        let stored_bytes = self.fill_gaps(Stored { start, piece });",
        mistake: "        let end = start + piece.len() as u64;\n        let mut piece = piece;\n        let covers = |it: &&mut Stored<P>| start <= it.start && it.end() <= end;\n        if let Some(old) = self.pieces.iter_mut().find(covers) {\n            let mut new = piece.split_off(to_usize(old.start - start));\n            let _ = new.split_off(old.piece.len());\n            old.piece = new;\n            return Insert::Duplicate;\n        }\n        let stored_bytes = self.fill_gaps(Stored { start, piece });",
        finder: Finder::Fuzzer("segments"),
    },
    Planted {
        name: "last-segment-wins-when-its-turn-comes",
        file: "crates/tcp/src/receiver/queue.rs",
        original: "first.map_or(usize::MAX, |offset| offset as usize);",
        mistake: "first.map_or(usize::MAX, |_| usize::MAX);",
        finder: Finder::Fuzzer("segments"),
    },
    Planted {
        name: "conflict-of-segments-not-counted",
        file: "crates/tcp/src/receiver/assembler.rs",
        original: "overlap.is_conflicting |= piece.differs(",
        mistake: "overlap.is_conflicting &= piece.differs(",
        finder: Finder::Fuzzer("segments"),
    },
    Planted {
        // It was there.
        name: "peek-beyond-the-urgent-mark",
        file: "crates/tcp/src/connection.rs",
        original: "        let len_max = self.read_len_max(out.len());\n        self.receiver.queue.peek(",
        mistake: "        let len_max = out.len();\n        self.receiver.queue.peek(",
        finder: Finder::Fuzzer("calls"),
    },
    Planted {
        name: "overlapping-fragments-taken",
        file: "crates/ip/src/reassembly/datagram.rs",
        original: "if overlaps || contradicts { Place::Taken } else { Place::Free }",
        mistake: "if (overlaps && false) || contradicts { Place::Taken } else { Place::Free }",
        finder: Finder::Fuzzer("reassembly"),
    },
    Planted {
        name: "steering-tells-not-everyone",
        file: "crates/steering/src/spread.rs",
        original: "Class::Everyone => Target::All,",
        mistake: "Class::Everyone => Target::Ring,",
        finder: Finder::Fuzzer("steering"),
    },
    Planted {
        name: "steering-errors-of-the-wrong-end",
        file: "crates/steering/src/classify.rs",
        original: "Flow { remote: error.quoted.remote, local: error.quoted.local }",
        mistake: "Flow { remote: error.quoted.local, local: error.quoted.remote }",
        finder: Finder::Unit("multidata-steering", "classify"),
    },
    Planted {
        name: "soft-ring-for-one-flow-alone",
        file: "crates/batch/src/flow_shares.rs",
        original: "flow.count >= free.count || flow.bytes >= free.bytes",
        mistake: "false && flow.count >= free.count",
        finder: Finder::Unit("multidata-batch", "flow_shares"),
    },
    Planted {
        name: "soft-ring-out-of-order",
        file: "crates/steering/src/soft_ring.rs",
        original: "self.waiting.push_back(entry);",
        mistake: "self.waiting.push_front(entry);",
        finder: Finder::Simulator,
    },
    Planted {
        name: "stray-forgotten",
        file: "crates/steering/src/exchange.rs",
        original: "        strays.queue.push_back(stray);",
        mistake: "        if strays.queue.len() != 1 { strays.queue.push_back(stray); }",
        finder: Finder::Simulator,
    },
    Planted {
        name: "squeue-not-told",
        file: "crates/steering/src/exchange.rs",
        original: "            lane.push_to(ring);\n            self.concerned |= 1 << home.0;",
        mistake: "            lane.push_to(ring);\n            self.concerned = 1 << home.0;",
        finder: Finder::Simulator,
    },
    Planted {
        name: "segment-not-handed-on",
        file: "crates/stack/src/share.rs",
        original: "if incoming.origin.is_home {",
        mistake: "if true || incoming.origin.is_home {",
        finder: Finder::Simulator,
    },
    Planted {
        name: "tentative-address-in-another-squeue",
        file: "crates/stack/src/network/addressing/mod.rs",
        original: "has_link && policy == ClaimPolicy::Probe",
        mistake: "false && has_link && policy == ClaimPolicy::Probe",
        finder: Finder::Simulator,
    },
    Planted {
        name: "every-squeue-asks-neighbours",
        file: "crates/stack/src/network/neighbours.rs",
        original: "if self.leaves_asking(id, &request) {",
        mistake: "if request.unicast_to.is_none() && self.leaves_asking(id, &request) {",
        finder: Finder::Simulator,
    },
];
