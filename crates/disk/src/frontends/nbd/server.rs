//! Accepting connections, and the list of those there are.
//!
//! Each listener has a thread, which ends when its waker becomes readable; each connection has
//! another one, and a place in the registry from `join` to the end of its [`Membership`], however
//! it ends.
//!
//! The registry's lock is held for a look or a change of the list, and never while the device
//! works, a socket is read or another lock of a connection is taken (N3). `stopping` is there
//! twice: under the lock, for newcomers, and as an atomic that connections read between two
//! requests; it is set first, so that no connection goes on taking requests once the list says that
//! the server stops. `left` is signalled after each change that a shutdown waits for: a member or a
//! listener that has gone.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use zfold_store::pool::{Lock, sound};

use super::budget::Shared;
use super::channel::Channel;
use super::connection::Connection;
use super::fence::Fence;
use super::handshake::{Agreed, Handshake};
use super::listener::Listener;
use super::options::NbdOptions;
use super::places::Places;
use super::serve::Responder;
use super::socket::Socket;
use super::stats::{NbdCounters, NbdStats};
use crate::disk::Disk;

/// Pause after a connection could not be accepted for lack of something.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Most threads that serve one connection.
const THREADS_MAX: usize = 8;

/// A server for one device on any number of listeners.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer};
/// # use zfold_disk::{Disk, DiskOptions, SectorSize};
/// # use zfold_store::{CodecKind, Store, StoreOptions};
/// # let store = Store::open(&StoreOptions::new(256, CodecKind::Lz4.into()))?;
/// # let options = DiskOptions::new(1 << 20).with_sector(SectorSize::B512);
/// # let disk = Arc::new(Disk::new(Arc::new(store), &options)?);
/// let server = NbdServer::new(disk, NbdOptions::default());
/// # let folder = tempfile::tempdir()?;
/// # let socket = folder.path().join("nbd");
/// let listener = Listener::bind(&Address::Unix(socket))?;
/// println!("{}", listener.uri(false));
/// server.serve(listener)?;
/// assert!(server.shutdown(Duration::from_secs(10)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NbdServer {
    disk: Arc<Disk>,
    fence: Fence,
    options: NbdOptions,
    counters: NbdCounters,
    /// The memory that the requests of all connections hold.
    held: Shared,
    /// Once set no more requests are taken.
    stopping: AtomicBool,
    registry: Lock<Registry>,
    /// Signalled when a connection or a listener leaves.
    left: Condvar,
}

#[derive(Debug)]
struct Registry {
    stopping: bool,
    places: Places,
    /// One for each listener: readable once the server stops.
    wakers: Vec<Arc<OwnedFd>>,
    listeners: usize,
}

/// A connection's place in the registry.
struct Membership {
    server: Arc<NbdServer>,
    id: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Also where a panic brought it here.
        self.server.registry.lock().places.leave(self.id);
        self.server.left.notify_all();
    }
}

impl NbdServer {
    /// Returns a server that listens nowhere yet.
    #[must_use]
    pub fn new(disk: Arc<Disk>, options: NbdOptions) -> Arc<Self> {
        let held = Shared::new(options.max_held_bytes);
        let places = Places::new(&options);
        let registry = Registry { stopping: false, places, wakers: Vec::new(), listeners: 0 };
        Arc::new(Self {
            disk,
            fence: Fence::default(),
            options,
            held,
            counters: NbdCounters::default(),
            stopping: AtomicBool::new(false),
            registry: Lock::new(registry),
            left: Condvar::new(),
        })
    }

    /// Accepts connections on `listener` from now on, in a thread of its own, until
    /// [`shutdown`](Self::shutdown).
    ///
    /// # Errors
    /// If there is no thread or descriptor to be had, or the server was shut down.
    pub fn serve(self: &Arc<Self>, listener: Listener) -> io::Result<()> {
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        listener.set_nonblocking()?;
        {
            let mut registry = self.registry.lock();
            if registry.stopping {
                return Err(io::Error::other("the server was shut down"));
            }
            registry.wakers.push(Arc::clone(&waker));
            registry.listeners += 1;
        }
        let server = Arc::clone(self);
        let accept = move || {
            server.accept(&listener, &waker);
            drop(listener);
            server.registry.lock().listeners -= 1;
            server.left.notify_all();
        };
        let started = Builder::new().name("nbd-accept".into()).spawn(accept);
        if started.is_err() {
            self.registry.lock().listeners -= 1;
        }
        started.map(drop)
    }

    /// Serves one connection that is there already, such as one half of a socket pair, and
    /// returns after its end. Nothing happens but that the socket is closed if the server was
    /// shut down.
    pub fn serve_connection(self: &Arc<Self>, stream: UnixStream) {
        if let Some((member, socket)) = self.join(stream.into()) {
            member.converse(socket);
        }
    }

    /// Returns the counts.
    #[must_use]
    pub fn stats(&self) -> NbdStats {
        self.counters.snapshot(self.registry.lock().places.len() as u64)
    }

    /// Stops: accepts no more connections and takes no more requests. Requests that were received
    /// are answered; then their connections are closed. Those that are not done within `drain`,
    /// because their clients do not read the replies or the device is slow, are closed without.
    /// Returns whether all were done in time. A Unix socket's file is gone afterwards.
    pub fn shutdown(&self, drain: Duration) -> bool {
        let deadline = Instant::now() + drain;
        // Release: a thread that sees what is done to the sockets sees it, too.
        self.stopping.store(true, Ordering::Release);
        let mut registry = self.registry.lock();
        registry.stopping = true;
        for waker in registry.wakers.drain(..) {
            // It is written to once, so there is room.
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        }
        registry.places.finish();
        while registry.places.len() > 0 || registry.listeners > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                registry.places.close();
                return false;
            }
            let (guard, _) = sound(self.left.wait_timeout(registry, left));
            registry = guard;
        }
        true
    }

    fn accept(self: &Arc<Self>, listener: &Listener, waker: &OwnedFd) {
        loop {
            let mut polled =
                [PollFd::new(waker, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            // A signal interrupts it at most.
            let _ = poll(&mut polled, None);
            if !polled[0].revents().is_empty() {
                return;
            }
            match listener.accept() {
                Ok(socket) => self.start(socket),
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    // Out of descriptors or memory: the connection stays in the queue.
                    let mut polled = [PollFd::new(waker, PollFlags::IN)];
                    let _ = poll(&mut polled, Some(&ACCEPT_PAUSE));
                }
            }
        }
    }

    /// Gives a new connection a thread of its own.
    fn start(self: &Arc<Self>, socket: Socket) {
        if let Some((member, socket)) = self.join(socket) {
            // Without a thread to be had, the membership is dropped, which closes the connection.
            let _ = Builder::new().name("nbd".into()).spawn(move || member.converse(socket));
        }
    }

    /// Enters a connection in the registry, or closes it if there is no room.
    fn join(self: &Arc<Self>, socket: Socket) -> Option<(Membership, Arc<Socket>)> {
        let socket = Arc::new(socket);
        let id = {
            let mut registry = self.registry.lock();
            let stopping = registry.stopping;
            (!stopping).then(|| registry.places.enter(&socket)).flatten()
        };
        let Some(id) = id else {
            self.counters.refused_total.add(1);
            return None;
        };
        self.counters.connections_total.add(1);
        Some((Membership { server: Arc::clone(self), id }, socket))
    }
}

impl Membership {
    /// Leads a connection from its greeting to its end.
    fn converse(&self, socket: Arc<Socket>) {
        let NbdServer { disk, fence, options, counters, held, stopping, .. } = &*self.server;
        let admit = || self.become_client();
        let channel = Channel::new(Arc::clone(&socket));
        let (agreed, channel, input) = match Handshake::new(disk, options, &admit, channel).run() {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return,
            Err(_) => {
                counters.failed_handshakes_total.add(1);
                return;
            }
        };
        let Agreed { structured, allocation } = agreed;
        // Without a descriptor to watch it, the connection is closed.
        let Ok(fence) = fence.enter(self.id, &socket, stopping) else { return };
        let responder = Responder {
            disk,
            structured,
            allocation,
            max_request: options.max_request(),
            activity: socket.activity(),
        };
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let threads = cpus.min(THREADS_MAX);
        let counted = (held, counters);
        let served = (responder, fence);
        Connection::new((channel, input), served, threads, stopping, counted).run();
    }

    /// Asks for a client's place. From there on a shutdown waits for the requests.
    fn become_client(&self) -> bool {
        let (admitted, gave_way) = {
            let mut registry = self.server.registry.lock();
            let stopping = registry.stopping;
            if stopping { (false, false) } else { registry.places.become_client(self.id) }
        };
        let NbdCounters { refused_total, gave_way_total, .. } = &self.server.counters;
        refused_total.add(u64::from(!admitted));
        gave_way_total.add(u64::from(gave_way));
        admitted
    }
}

/// Returns whether an error concerns one connection, which is gone, and not the listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}
