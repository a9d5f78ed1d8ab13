//! TCP as sockets, and what a host keeps of connections that have none.
//!
//! * `tcp_socket.rs` is the calls on connections, `connect.rs` how our own are opened.
//! * `backlog.rs` is how peers' connections come to be: listeners, and handshakes (`handshakes.rs`) until they are complete.
//!   `time_wait.rs` is what is left of closed ones. Both keep small entries in a `flow_table.rs`, and so does
//!   `spent_cookies.rs`, which knows the SYN cookies that have opened a connection.
//! * `fast_open.rs` keeps the cookies of connections that begin with data, `fast_open_keys.rs` has the keys of ours.
//! * `train.rs` takes frames that repeat the headers of the frame before them.

pub(crate) mod backlog;
pub(crate) mod connect;
pub(crate) mod fast_open;
pub(crate) mod fast_open_keys;
pub(crate) mod flow_table;
pub(crate) mod handshakes;
pub(crate) mod spent_cookies;
pub(crate) mod tcp_socket;
pub(crate) mod time_wait;
pub(crate) mod train;
