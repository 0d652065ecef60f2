//! Reports to the service manager how far the server is: a datagram to the socket that it names.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager `state`, such as `READY=1`, if there is one.
pub(crate) fn tell(state: &str) {
    if let Some(address) = std::env::var_os("NOTIFY_SOCKET") {
        // Without it the manager waits, and says so itself.
        let _ = send(&address, state);
    }
}

/// Sends `state` to a socket by its path, or by its abstract name if that begins with '@'.
fn send(address: &OsString, state: &str) -> io::Result<usize> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let abstract_name = format!("@zfold-test-{}", std::process::id());
        let name = SocketAddr::from_abstract_name(&abstract_name.as_bytes()[1..]).expect("short");
        let sockets = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path)),
            (abstract_name.into(), UnixDatagram::bind_addr(&name)),
        ];
        for (address, socket) in sockets {
            send(&address, "READY=1").expect("sent");
            let mut text = [0; 32];
            let len = socket.expect("bound").recv(&mut text).expect("received");
            assert_eq!(&text[..len], b"READY=1");
        }
    }
}
