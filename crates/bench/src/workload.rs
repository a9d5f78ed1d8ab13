//! What the two ends do with their connections.
//!
//! Of a stream or of transactions both ends run the same code, over whichever [`crate::socket::Socket`] they have: this stack's,
//! or the kernel's in another process.

pub mod datagrams;
pub mod request_response;
pub mod stream;
