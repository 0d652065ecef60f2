//! A connected stream socket, shared by the threads that read and write it.
//!
//! One thread at a time reads and one at a time sends: the connection sees to that (connection/C1),
//! and a socket has no lock for it. The lock here guards the deadline alone, for a moment, never
//! across a call. Any thread may close: one that waits for bytes then gets none, one that sends
//! gets an error. Every byte that passes counts as activity, and a peer that is gone without a word
//! is noticed in two minutes.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{
    Timeout, set_socket_keepalive, set_socket_timeout, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl,
};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use zfold_store::pool::Lock;

use super::activity::Activity;

/// Slices that one system call takes at most.
const SLICES_PER_CALL: usize = 512;

/// Bytes that one system call sends at most. Each of them counts as activity, so that a peer that
/// takes a large reply slowly is not idle meanwhile.
const BYTES_PER_CALL: usize = 256 << 10;

/// When the system begins to probe a silent peer, how often it does, and how many probes fail
/// before it ends the connection: a peer that vanished is noticed after two minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMES: u32 = 6;

/// The address of a client, as far as it identifies the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// On this machine, let in by the mode of a file.
    Local,
    V4(Ipv4Addr),
    /// The network of 64 bits, in which anyone may have as many addresses as he likes.
    V6([u8; 8]),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let octets = address.octets();
                Self::V6(std::array::from_fn(|n| octets[n]))
            }
        }
    }
}

/// A connected stream socket. Sending to one whose peer has left is an error, never a signal.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    peer: Peer,
    activity: Activity,
    /// When calls give up waiting for the peer.
    deadline: Lock<Option<Instant>>,
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self::new(stream.into(), Peer::Local)
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        // Replies are small and never wait for another one; a peer that vanished is noticed.
        // All are conveniences: the connection works without them.
        let _ = stream.set_nodelay(true);
        let _ = set_socket_keepalive(&stream, true);
        let _ = set_tcp_keepidle(&stream, KEEPALIVE_AFTER);
        let _ = set_tcp_keepintvl(&stream, KEEPALIVE_EVERY);
        let _ = set_tcp_keepcnt(&stream, KEEPALIVE_TIMES);
        // A client that has already left is in no other's way.
        let peer = stream.peer_addr().map_or(Peer::Local, |address| address.ip().into());
        Self::new(stream.into(), peer)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    fn new(fd: OwnedFd, peer: Peer) -> Self {
        Self { fd, peer, activity: Activity::new(), deadline: Lock::default() }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Receives what there is, at least one byte; 0 means that the peer sends no more.
    pub(super) fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        self.check_deadline()?;
        let (received, _) = retry_on_intr(|| recv(&self.fd, &mut *out, RecvFlags::empty()))?;
        self.activity.note();
        Ok(received)
    }

    /// Sends all of `slices`, in few system calls.
    pub(super) fn send_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            self.check_deadline()?;
            let mut len = 0;
            let fits = |slice: &&IoSlice<'_>| {
                len += slice.len();
                len <= BYTES_PER_CALL
            };
            let part;
            let some = match slices.iter().take(SLICES_PER_CALL).take_while(fits).count() {
                0 => {
                    part = [IoSlice::new(&slices[0][..BYTES_PER_CALL])];
                    &part
                }
                whole => &slices[..whole],
            };
            let send = || {
                let mut nothing = SendAncillaryBuffer::default();
                sendmsg(&self.fd, some, &mut nothing, SendFlags::NOSIGNAL)
            };
            // Before: a peer that has the reply may count on it.
            self.activity.note();
            let sent = retry_on_intr(send)?;
            IoSlice::advance_slices(&mut slices, sent);
        }
        Ok(())
    }

    /// Sets when calls give up waiting for the peer, however slowly it goes on; `None` is never.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        *self.deadline.lock() = deadline;
        if deadline.is_none() { self.limit_wait(None) } else { Ok(()) }
    }

    /// Limits the next call to the time left until the deadline.
    fn check_deadline(&self) -> io::Result<()> {
        let deadline = *self.deadline.lock();
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.limit_wait(Some(left))
    }

    fn limit_wait(&self, limit: Option<Duration>) -> io::Result<()> {
        set_socket_timeout(&self.fd, Timeout::Recv, limit)?;
        Ok(set_socket_timeout(&self.fd, Timeout::Send, limit)?)
    }

    /// Ends receiving: a thread that waits for bytes gets none.
    pub(super) fn close_reading(&self) {
        // A peer that has left already makes this fail, which is as good.
        let _ = shutdown(&self.fd, Shutdown::Read);
    }

    /// Ends both directions at once.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::thread;

    use rustix::net::sockopt::{
        set_socket_send_buffer_size, socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl,
        tcp_nodelay,
    };
    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    #[test]
    fn the_system_asks_whether_a_silent_peer_is_there() {
        let tcp = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let socket = Socket::from(TcpStream::from(tcp));
        assert!(socket_keepalive(&socket).unwrap() && tcp_nodelay(&socket).unwrap());
        assert_eq!(tcp_keepidle(&socket).unwrap(), KEEPALIVE_AFTER);
        assert_eq!(tcp_keepintvl(&socket).unwrap(), KEEPALIVE_EVERY);
        assert_eq!(tcp_keepcnt(&socket).unwrap(), KEEPALIVE_TIMES);
    }

    #[test]
    fn a_peer_that_takes_a_large_reply_is_not_idle() {
        const LEN: usize = 32 << 20;
        let (server, peer) = UnixStream::pair().unwrap();
        set_socket_send_buffer_size(&server, 64 << 10).unwrap();
        let socket = Socket::from(server);
        // Of each kind: one that is larger than a call's share, many that are smaller.
        let (large, small) = (vec![1; LEN / 2], vec![2; LEN / 2]);
        let sent = || {
            let small = small.chunks(1000).map(IoSlice::new);
            let mut slices: Vec<_> = [IoSlice::new(&large)].into_iter().chain(small).collect();
            socket.send_all(&mut slices).unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(sent);
            // It goes with a panic, which ends the sending.
            let mut peer = peer;
            let mut taken = vec![0; LEN / 8];
            for part in 0..8 {
                let began = Instant::now();
                // More than the system holds for a peer: the server sends some of it meanwhile.
                peer.read_exact(&mut taken).unwrap();
                let idle = socket.activity().idle().unwrap();
                assert!(idle <= began.elapsed(), "part {part}: {idle:?}");
                assert!(taken.iter().all(|&byte| byte == 1 + part / 4), "part {part}");
            }
        });
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    }
}
