//! Bytes as a list of decisions.

/// Takes decisions from the front of the bytes; beyond their end everything is zero.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.part(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next two bytes with a sign.
    pub fn offset(&mut self) -> i16 {
        self.word() as i16
    }

    /// The next `len` bytes, or what is left.
    pub fn part(&mut self, len: usize) -> &'a [u8] {
        let (part, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        part
    }

    /// A part whose length stands in front of it, in one byte.
    pub fn short_part(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte());
        self.part(len)
    }
}
