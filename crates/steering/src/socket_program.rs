//! A [`Spread`] as a program for the kernel: classic BPF (`linux/filter.h`) that says which queue a frame
//! belongs to, so that packet sockets that share an interface (PACKET_FANOUT) get the frames of their own
//! connections. The kernel's own hash has a key that is random for each boot, so it can be asked for nothing
//! that holds.
//!
//! ```text
//!   IPv4, no fragment: TCP -> addresses and ports, folded  \
//!                      UDP -> destination port              > its hash, scaled, % homes -> queue
//!   IPv6 without extension headers: the same               /
//!   everything else -> queue 0
//! ```
//!
//! The message folds into one word first ([`toeplitz`](crate::toeplitz)), of which each bit is a step of its own that
//! adds its part of the key, because the language has no loops: some 150 instructions.
//! What it does not tell (errors, fragments, discovery) the receiving squeue hands over itself, as it does
//! everything where there is no such program: it decides where work begins, not what is right.

use crate::spread::{Policy, Spread};
use crate::toeplitz::window;
use wire::{ether_type, protocol};

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions it passes over where its condition holds.
    pub jump_true: u8,
    /// And where it does not.
    pub jump_false: u8,
    /// Its operand.
    pub value: u32,
}

/// Offsets from here on count from the network header (SKF_NET_OFF), wherever the frame begins.
const NETWORK: u32 = -0x10_0000_i32 as u32;
/// The frame's EtherType (SKF_AD_OFF, SKF_AD_PROTOCOL).
const ETHER_TYPE: u32 = -0x1000_i32 as u32;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD_AT_X: u16 = 0x40;
const LOAD_MEMORY: u16 = 0x60;
const LOAD_VALUE: u16 = 0x00;
/// X = 4 * (byte & 15): the length of an IPv4 header.
const LOAD_X_HEADER_LEN: u16 = 0xb1;
const LOAD_X_VALUE: u16 = 0x01;
const STORE: u16 = 0x02;
const TO_X: u16 = 0x07;
const FROM_X: u16 = 0x87;
const ADD_X: u16 = 0x0c;
const MULTIPLY: u16 = 0x24;
const MODULO: u16 = 0x94;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const EXCLUSIVE_OR_X: u16 = 0xac;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;

/// Where the word lies whose bits are looked at, and two halves of a product.
const WORD: u32 = 0;
const MIXED: u32 = 1;
const HIGH: u32 = 2;

impl Spread {
    /// The program, or `None` where there is nothing to spread, or connections go by another policy than
    /// [`Policy::Flow`].
    #[must_use]
    pub fn socket_program(&self) -> Option<Vec<Instruction>> {
        if self.homes() < 2 || self.policy() != Policy::Flow {
            return None;
        }
        let mut program = Program(Vec::new());
        program.load_ether_type();
        let ipv4 = program.branch(u32::from(ether_type::IPV4));
        let ipv6 = program.branch(u32::from(ether_type::IPV6));
        program.first_queue();
        program.land(ipv4);
        let mut ends = program.of_ipv4();
        program.land(ipv6);
        ends.extend(program.of_ipv6());
        ends.into_iter().for_each(|end| program.land(end));
        program.hash();
        program.scale(self.layout().homes_max(), self.homes());
        Some(program.0)
    }
}

/// A long jump whose end is not known yet.
struct Pending(usize);

struct Program(Vec<Instruction>);

impl Program {
    fn step(&mut self, code: u16, value: u32) {
        self.condition(code, 0, 0, value);
    }

    fn condition(&mut self, code: u16, jump_true: u8, jump_false: u8, value: u32) {
        self.0.push(Instruction { code, jump_true, jump_false, value });
    }

    fn load_ether_type(&mut self) {
        self.step(LOAD_HALF, ETHER_TYPE);
    }

    /// Jumps far away, to where [`Program::land`] says.
    fn jump(&mut self) -> Pending {
        self.step(JUMP, 0);
        Pending(self.0.len() - 1)
    }

    /// Jumps far away where A is this.
    fn branch(&mut self, value: u32) -> Pending {
        self.condition(JUMP_EQUAL, 0, 1, value);
        self.jump()
    }

    /// A jump ends here.
    fn land(&mut self, Pending(at): Pending) {
        let distance = (self.0.len() - at - 1) as u32;
        if let Some(jump) = self.0.get_mut(at) {
            jump.value = distance;
        }
    }

    fn first_queue(&mut self) {
        self.step(RETURN, 0);
    }

    /// Ends with the word to hash in the lower half of A.
    fn of_ipv4(&mut self) -> Vec<Pending> {
        // More fragments, or not the first.
        self.step(LOAD_HALF, NETWORK + 6);
        self.condition(JUMP_SET, 0, 1, 0x3fff);
        self.first_queue();
        self.step(LOAD_BYTE, NETWORK + 9);
        let tcp = self.branch(protocol::TCP.into());
        let udp = self.branch(protocol::UDP.into());
        self.first_queue();
        self.land(tcp);
        self.step(LOAD_X_HEADER_LEN, NETWORK);
        self.step(LOAD_WORD_AT_X, NETWORK);
        self.fold(NETWORK + 12, 2);
        let end = self.jump();
        self.land(udp);
        self.step(LOAD_X_HEADER_LEN, NETWORK);
        self.step(LOAD_WORD_AT_X, NETWORK);
        vec![end, self.jump()]
    }

    /// As [`Program::of_ipv4`].
    fn of_ipv6(&mut self) -> Vec<Pending> {
        self.step(LOAD_BYTE, NETWORK + 6);
        let tcp = self.branch(protocol::TCP.into());
        let udp = self.branch(protocol::UDP.into());
        self.first_queue();
        self.land(tcp);
        self.step(LOAD_WORD, NETWORK + 40);
        self.fold(NETWORK + 8, 8);
        let end = self.jump();
        self.land(udp);
        // The destination port is the lower half.
        self.step(LOAD_WORD, NETWORK + 40);
        vec![end, self.jump()]
    }

    /// Folds A and `count` words at `offset` into the lower half of A.
    fn fold(&mut self, offset: u32, count: u32) {
        for index in 0..count {
            self.step(TO_X, 0);
            self.step(LOAD_WORD, offset + 4 * index);
            self.step(EXCLUSIVE_OR_X, 0);
        }
        self.step(TO_X, 0);
        self.step(SHIFT_RIGHT, 16);
        self.step(EXCLUSIVE_OR_X, 0);
    }

    /// The hash of the lower half of A, in X.
    fn hash(&mut self) {
        self.step(STORE, WORD);
        self.step(LOAD_X_VALUE, 0);
        for bit in 0..16 {
            self.step(LOAD_MEMORY, WORD);
            self.condition(JUMP_SET, 0, 3, 1 << (15 - bit));
            self.step(LOAD_VALUE, window(bit));
            self.step(EXCLUSIVE_OR_X, 0);
            self.step(TO_X, 0);
        }
    }

    /// As `spread::scaled`, with the product of 64 bits put together from two of 32.
    fn scale(&mut self, slots: u16, homes: u16) {
        self.step(FROM_X, 0);
        self.step(MULTIPLY, crate::spread::SCATTER);
        self.step(STORE, MIXED);
        self.step(SHIFT_RIGHT, 16);
        self.step(MULTIPLY, slots.into());
        self.step(STORE, HIGH);
        self.step(LOAD_MEMORY, MIXED);
        self.step(AND, 0xffff);
        self.step(MULTIPLY, slots.into());
        self.step(SHIFT_RIGHT, 16);
        self.step(TO_X, 0);
        self.step(LOAD_MEMORY, HIGH);
        self.step(ADD_X, 0);
        self.step(SHIFT_RIGHT, 16);
        self.step(MODULO, homes.into());
        self.step(RETURN_A, 0);
    }
}

#[cfg(test)]
mod tests;
