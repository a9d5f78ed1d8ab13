//! Sockets of a [`multidata::Stack`] for tokio's tasks.
//!
//! [`TcpStream`], [`TcpListener`] and [`UdpSocket`] are shaped like those of `tokio::net`, [`RawSocket`] like
//! the last; [`TcpForwarder`] and [`UdpForwarder`] take connections and datagrams to addresses of others, and
//! streams are [`AsyncRead`](tokio::io::AsyncRead) and [`AsyncWrite`](tokio::io::AsyncWrite), so what is built
//! on these (hyper by `hyper_util::rt::TokioIo`, rustls, codecs, `tokio::io::copy`) runs over them. The stack brings what
//! waits for its devices with it; where tokio shall ([`drive`]), its I/O is used, and else only its traits and the
//! scheduler's budget.
//!
//! ```
//! use multidata::device::{Medium, WireConfig, WireEnd, wire};
//! use multidata::{InterfaceConfig, Stack};
//! use multidata_tokio::{TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # fn main() -> std::io::Result<()> {
//! let end = WireEnd::plain(Medium::Ip);
//! let (left, right) = wire(WireConfig::new(end, end));
//! let address = |text: &str| InterfaceConfig::new(text.parse().expect("an address and a prefix"));
//! let left = Stack::builder().interface(left, address("10.0.0.1/24")).build()?;
//! let right = Stack::builder().interface(right, address("10.0.0.2/24")).build()?;
//! let peer: std::net::SocketAddr = "10.0.0.2:7".parse().expect("an address");
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! runtime.block_on(async {
//!     let listener = TcpListener::bind(&right, peer)?;
//!     tokio::spawn(async move {
//!         let (mut stream, _peer) = listener.accept().await?;
//!         let (mut reader, mut writer) = stream.split();
//!         tokio::io::copy(&mut reader, &mut writer).await
//!     });
//!     let mut stream = TcpStream::connect(&left, peer).await?;
//!     stream.write_all(b"a batch of packets").await?;
//!     stream.shutdown().await?;
//!     let mut echo = String::new();
//!     stream.read_to_string(&mut echo).await?;
//!     assert_eq!(echo, "a batch of packets");
//!     std::io::Result::Ok(())
//! })
//! # }
//! ```
//!
//! # Who is woken, and what it costs
//!
//! A call first tries, under the stack's lock, and does what follows from it: a write sends its
//! packets. Where it would have to wait, a waker is entered under the same lock. An event of a
//! socket finds the wakers of that socket in a table, so its cost does not depend on how many
//! sockets there are, and tasks of other sockets and of the other direction sleep on. Each direction
//! of a socket enters one waker of its own, whose memory is bounded by the futures that exist, and
//! which tells all tasks that wait for that direction; where several wait (to accept, or to receive
//! from one socket), all are woken and the first one gets it, as in tokio.
//!
//! Tasks cannot wait for a device: the stack's own thread does, and a wake-up between threads
//! stands between a packet's arrival and its task. With [`drive`] the runtime waits for the device, too, and nothing
//! stands between them; that needs no file, so it goes for packet pipes as well.
//!
//! # Cancellation
//!
//! Every future may be dropped at any time and leaves no trace: nothing was read, written, accepted
//! or sent unless the call said so. Dropping the future of [`TcpStream::connect`] gives the attempt up.
//! The provided methods of `AsyncReadExt` and `AsyncWriteExt` are as safe as they say they are.
//!
//! # Shutting down
//!
//! Dropping a stream closes its connection, and the stack delivers in the background what was written, of as
//! many at once as [`multidata::StackConfig::orphans_max`] says: those dropped beyond are reset.
//! Dropping the last handle of a *stack* makes the dropping thread wait for that, for up to a second
//! ([`multidata::LINGER_ON_DROP`]); sockets are handles, too. So keep a handle outside the runtime, or
//! end with `tokio::task::spawn_blocking(move || stack.shutdown(timeout))`. A task whose device failed
//! is woken and told so.

mod direction;
#[cfg(unix)]
mod drive;
mod raw_socket;
mod tcp_forwarder;
mod tcp_listener;
mod tcp_split;
mod tcp_stream;
mod udp_forwarder;
mod udp_socket;

/// What the README shows is compiled with the tests of this crate, which has all that it uses.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(unix)]
pub use crate::drive::drive;
pub use crate::raw_socket::RawSocket;
pub use crate::tcp_forwarder::{PendingConnection, TcpForwarder};
pub use crate::tcp_listener::TcpListener;
pub use crate::tcp_split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use crate::tcp_stream::TcpStream;
pub use crate::udp_forwarder::UdpForwarder;
pub use crate::udp_socket::UdpSocket;
