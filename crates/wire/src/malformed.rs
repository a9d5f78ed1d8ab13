//! Why bytes are not the header they were taken for.
//!
//! One short list for every protocol: a parser says what is wrong with the bytes, and the layer
//! that called it knows which protocol it was and which drop reason that makes.

use core::fmt;

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Fewer bytes than the header, or than the header says there are.
    Truncated,
    /// A version, hardware or protocol number that this header cannot have.
    BadVersion,
    /// A length field that contradicts the header itself.
    BadLength,
    /// The checksum is wrong.
    BadChecksum,
    /// An option whose length or content breaks its rules.
    BadOption,
    /// A field whose value is forbidden here.
    BadField,
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Truncated => "there are fewer bytes than the header says",
            Self::BadVersion => "the version or type number does not belong to this header",
            Self::BadLength => "a length field contradicts the header",
            Self::BadChecksum => "the checksum is wrong",
            Self::BadOption => "an option breaks its own rules",
            Self::BadField => "a field holds a forbidden value",
        })
    }
}

impl core::error::Error for Malformed {}
