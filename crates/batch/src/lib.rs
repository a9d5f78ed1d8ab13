//! The batch: what crosses a layer of this stack.
//!
//! Three things live here, and none of them knows a protocol; [`FlowShares`] bounds what waits in
//! queues of them, fairly, [`StrayShares`] what shards have for each other, and [`Unread`] what nobody has read in all
//! sockets together.
//!
//! * [`Block`]: one contiguous buffer, shared by reference count, from a [`BlockPool`] of size
//!   classes or from the caller's own memory.
//! * [`Multidata`]: the transmit batch. One header block of fixed stride with room in front for
//!   lower headers, references to payload blocks, one descriptor per packet (offsets, never
//!   pointers). It is seed 000's M_MULTIDATA: metadata, headers and payload in one call from the
//!   transport to the device.
//! * [`ReceiveBatch`]: its mirror image. Frames lie in the blocks the device filled; headers are
//!   read there and payload is handed on as [`Chunk`]s of those blocks, without a copy.
//!
//! ```text
//!  Multidata
//!  packets   [ d0 | d1 | d2 | ... ]         one descriptor per packet
//!               |    |    |
//!  headers   [..eth ip tcp|..eth ip tcp|..eth ip tcp|  one block, fixed stride,
//!             ^ headroom   ^            ^              filled from the right to the left
//!  spans     [ b0:0+1460 | b0:1460+1460 | b0:2920+80 b1:0+1380 | ... ]
//!                 |                              |
//!  blocks    [ Block 0 (64 KiB of the application's bytes) | Block 1 ]
//! ```

mod block;
mod chunks;
mod copy_out;
mod flow_shares;
mod headers;
mod multidata;
mod pool;
mod receive;
mod strays;
mod sums;
mod unread;

pub use block::{Block, BlockMut, Chunk};
pub use chunks::Chunks;
pub use copy_out::holds_much_more;
pub use flow_shares::{Admission, FlowShares};
pub use multidata::{Attributes, Checksum, HeaderLayout, Limits, Multidata, PacketView, Payload};
pub use pool::{BlockPool, Exhausted, PoolConfig, PoolCounters};
pub use receive::{Frame, ReceiveBatch, ReceivedChecksum, Segmented};
pub use strays::{StrayShares, StrayWeight};
pub use sums::Pieces;
pub use unread::{Unread, UnreadBound};
