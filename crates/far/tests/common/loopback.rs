//! Whether there is loopback. Tests of other crates ask, too.

use std::net::{TcpListener, TcpStream};

/// Returns whether a connection over loopback can be made. In a new network namespace it is down,
/// which only a connection finds out: a socket can be bound there.
pub(crate) fn is_there() -> bool {
    TcpListener::bind("127.0.0.1:0").and_then(|at| TcpStream::connect(at.local_addr()?)).is_ok()
}
