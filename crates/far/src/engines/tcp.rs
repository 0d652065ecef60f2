//! Sockets that know deadlines: connecting, reading and writing end by then, whatever the other
//! side does and however slowly.
//!
//! - R1: no call takes longer than its deadline; it then fails with `TimedOut` or `WouldBlock`.
//! - R9: no more is read than is allowed, so that a server that does not end fills no memory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::place::Address;

/// The most bytes of a handshake, with its certificates or what it says of an export.
const HANDSHAKE_MAX: usize = 1 << 20;

/// A socket whose every read and write ends by one deadline (R1).
#[derive(Debug)]
pub(super) struct Timed {
    tcp: TcpStream,
    pub(super) deadline: Instant,
    /// Bytes that may still be read (R9); at first those of a handshake.
    pub(super) allowed: usize,
}

impl Timed {
    /// Connects to the first address of a name that accepts.
    pub(super) fn connect(address: &Address, deadline: Instant) -> io::Result<Self> {
        let mut last = io::Error::other("its name has no address");
        for socket in resolve(address, deadline)? {
            let left = left(deadline).ok_or(io::ErrorKind::TimedOut)?;
            match TcpStream::connect_timeout(&socket, left) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    return Ok(Self { tcp, deadline, allowed: HANDSHAKE_MAX });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns one end of a pair of sockets, as if a server were at the other.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn over(pair: std::os::unix::net::UnixStream, deadline: Instant) -> Self {
        let tcp = TcpStream::from(std::os::fd::OwnedFd::from(pair));
        Self { tcp, deadline, allowed: HANDSHAKE_MAX }
    }

    /// Returns whether the other side has neither closed the connection nor said anything.
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = self.tcp.set_nonblocking(true).and_then(|()| self.tcp.peek(&mut [0]));
        let quiet = quiet.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        quiet && self.tcp.set_nonblocking(false).is_ok()
    }
}

impl Read for Timed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.allowed == 0 {
            return Err(io::Error::other("it answers more than it was asked for"));
        }
        let most = out.len().min(self.allowed);
        let len = uninterrupted(self.deadline, |left| {
            self.tcp.set_read_timeout(Some(left))?;
            self.tcp.read(&mut out[..most])
        })?;
        self.allowed -= len;
        Ok(len)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        uninterrupted(self.deadline, |left| {
            self.tcp.set_write_timeout(Some(left))?;
            self.tcp.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// Returns how long it is until `deadline`, or none if it has passed.
pub(super) fn left(deadline: Instant) -> Option<Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// Makes a call that may take the time that is left, again after each signal: those end the wait of
/// a socket that has a timeout, even if they only stop the program for a while.
fn uninterrupted(
    deadline: Instant,
    mut call: impl FnMut(Duration) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match call(left(deadline).ok_or(io::ErrorKind::TimedOut)?) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns the addresses of a name. The system's resolver knows no deadline, so a separate thread
/// calls it, which ends when the resolver gives up.
fn resolve(address: &Address, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = (address.host().to_owned(), address.port());
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (sender, answer) = mpsc::channel();
    thread::Builder::new().name("zfold-resolve".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
        // Past the deadline, no thread waits for it.
        let _ = sender.send(found);
    })?;
    let left = left(deadline).ok_or(io::ErrorKind::TimedOut)?;
    answer.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_handshake_has_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let deadline = Instant::now() + Duration::from_secs(60);
        let Ok(mut client) = Timed::connect(&Address::new("127.0.0.1", port), deadline) else {
            return zfold_testing::skip("no loopback network");
        };
        thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("a connection");
            while server.write_all(&[0; 4096]).is_ok() {}
        });
        let mut heard = Vec::new();
        let error = client.read_to_end(&mut heard).expect_err("it does not end").to_string();
        assert!(error.contains("more than it was asked for"), "{error}");
        assert_eq!(heard.len(), HANDSHAKE_MAX);
    }

    #[test]
    fn signals_end_no_wait_before_its_deadline() {
        let interrupted = || Err(io::ErrorKind::Interrupted.into());
        let soon = || Instant::now() + Duration::from_millis(20);
        let mut calls = 0;
        let result = uninterrupted(soon() + Duration::from_secs(30), |_| {
            calls += 1;
            if calls < 3 { interrupted() } else { Ok(7) }
        });
        assert_eq!((result.expect("no error"), calls), (7, 3));
        let error = uninterrupted(soon(), |_| interrupted()).expect_err("it never ends well");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
