//! Listeners: addresses, socket files, and a server over both kinds of sockets.

mod client;

use std::fs;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use client::*;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
use zfold_disk::nbd::{Address, ListenError, Listener, NbdOptions, NbdServer};

/// Listens on loopback; says so where there is none.
fn on_loopback() -> Option<Listener> {
    if !has_loopback() {
        return None;
    }
    Some(Listener::bind(&Address::Tcp("127.0.0.1:0".into())).unwrap())
}

#[test]
fn addresses_are_unix_or_tcp() {
    assert_eq!("unix:/a:b".parse(), Ok(Address::Unix("/a:b".into())));
    assert_eq!("tcp:localhost:10809".parse(), Ok(Address::Tcp("localhost:10809".into())));
    assert_eq!("tcp:[::1]:0".parse(), Ok(Address::Tcp("[::1]:0".into())));
    for wrong in ["", "unix", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:a:99999", "/a", "vsock:1"]
    {
        let error = wrong.parse::<Address>().unwrap_err().to_string();
        assert!(error.contains("unix:PATH") && error.contains("tcp:HOST:PORT"), "{error}");
    }
}

#[test]
fn a_server_over_both_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a socket");
    let unix = Listener::bind(&Address::Unix(path.clone())).unwrap();
    let Some(tcp) = on_loopback() else { return };
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let encoded = path.display().to_string().replace(' ', "%20");
    assert_eq!(unix.uri(false), format!("nbd+unix:///?socket={encoded}"));
    assert!(unix.uri(true).starts_with("nbds+unix:"));
    let uri = tcp.uri(false);
    let port = uri.strip_prefix("nbd://127.0.0.1:").unwrap().strip_suffix('/').unwrap();

    let server = NbdServer::new(disk(16), NbdOptions::default());
    server.serve(unix).unwrap();
    server.serve(tcp).unwrap();
    let mut one = Client::greet(UnixStream::connect(&path).unwrap());
    let mut two = Client::greet(TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap());
    one.structured();
    one.go("");
    two.structured();
    two.go("");
    assert_eq!(one.write(0, 100, b"through the one"), 0);
    assert_eq!(two.read(0, 100, 15), Ok(b"through the one".to_vec()));
    assert_eq!(server.stats().connections, 2);

    assert!(server.shutdown(PATIENCE));
    one.assert_closed();
    two.assert_closed();
    assert!(!path.exists());
    assert!(UnixStream::connect(&path).is_err());
    let late = Listener::bind(&Address::Unix(path.clone())).unwrap();
    assert!(server.serve(late).is_err(), "what was shut down stays so");
    assert!(!path.exists());
}

#[test]
fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("socket"));
    let Address::Unix(path) = &address else { unreachable!() };
    // The file of a socket that nobody listens at, not even the children of other tests, which have
    // this process's files until they become other programs.
    let dead = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&dead, &SocketAddrUnix::new(path).unwrap()).unwrap();
    assert!(path.exists());
    let live = Listener::bind(&address).unwrap();
    let error = Listener::bind(&address).unwrap_err();
    assert!(matches!(&error, ListenError::InUse(found) if found == path));
    assert!(error.to_string().contains("stop it"), "{error}");
    assert!(UnixStream::connect(path).is_ok(), "the live one is as it was");
    // A file that took the socket's place is not ours to remove.
    fs::remove_file(path).unwrap();
    fs::write(path, "precious").unwrap();
    drop(live);
    assert_eq!(fs::read(path).unwrap(), b"precious");
    assert!(matches!(Listener::bind(&address), Err(ListenError::NotASocket(_))));
}

#[test]
fn addresses_that_cannot_be_bound_name_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let message = |address| Listener::bind(&address).unwrap_err().to_string();
    let nowhere = dir.path().join("none").join("socket");
    assert!(message(Address::Unix(nowhere)).contains("create the directory"));
    let long = dir.path().join("n".repeat(120));
    assert!(message(Address::Unix(long)).contains("too long"));
    let Some(tcp) = on_loopback() else { return };
    let taken = tcp.uri(false).replace("nbd://", "").replace('/', "");
    assert!(message(Address::Tcp(taken)).contains("choose another address"));
}

/// Set in the process that is to find a socket.
const INHERITS: &str = "ZFOLD_TEST_INHERITS";

#[test]
fn a_socket_of_a_service_manager_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    // The shell stands for the manager: the socket as descriptor 3, and its own number.
    let script = r#"exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@""#;
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "what_is_inherited_is_found"])
        .env(INHERITS, "1")
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut client = Client::greet(UnixStream::connect(&path).unwrap());
    client.structured();
    client.go("");
    assert_eq!(client.write(0, 0, &[1]), 0);
    drop(client);
    assert!(child.wait().unwrap().success());
    assert!(path.exists(), "the socket is the manager's");
}

#[test]
fn what_is_inherited_is_found() {
    let mut found = Listener::from_systemd().unwrap();
    if std::env::var_os(INHERITS).is_none() {
        return assert!(found.is_empty());
    }
    let server = NbdServer::new(disk(1), NbdOptions::default());
    assert!(found[0].uri(false).ends_with("/socket"));
    server.serve(found.remove(0)).unwrap();
    assert!(found.is_empty());
    wait_until("a client came and went", || {
        server.stats().requests_total > 0 && server.stats().connections == 0
    });
    assert!(server.shutdown(PATIENCE));
}
