//! The vhost-user-blk door: the device as a disk of a virtual machine.
//!
//! A virtual machine monitor (QEMU, cloud-hypervisor, crosvm) connects to a Unix socket and hands
//! over its guest's memory and queues; requests are then served without the monitor. One monitor
//! is served at a time; when it leaves, the socket waits for the next.
//!
//! What is trusted: the guest is not, neither what it puts into queues nor how it changes memory
//! while it is read. The monitor is trusted in two things that the protocol leaves to it: not to
//! truncate the memory that it shares, and not to hand over an event descriptor that blocks. Keep
//! the socket where only it can connect.
//!
//! The size that a guest sees is the one at the time its monitor asks: a device that grows shows it
//! at the next connection.

mod device;
mod request;

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;
use vhost::vhost_user::Listener;
use vhost_user_backend::{ShutdownHandle, VhostUserDaemon};
use vm_memory::GuestMemoryMmap;

use device::{Device, Memory};

use crate::{Disk, User};

/// Queues are the bits of a word.
const QUEUES_MAX: u16 = 64;
const QUEUE_SIZE_MAX: u16 = 1024;
/// How long to wait where the system has no descriptors or memory for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// How guests see the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserOptions {
    /// Queues, 1 to 64, each with a thread. Monitors refuse a device with fewer than they want,
    /// which by default is one for each of the guest's CPUs.
    pub queues: u16,
    /// Entries of the largest queue a monitor may set up: a power of two from 4 to 1024.
    pub queue_size: u16,
    /// What the guest reads as the disk's serial number, of which 20 bytes count.
    pub serial: String,
}

impl Default for VhostUserOptions {
    /// A queue for each CPU of this machine, of any size, and the serial number `zfold`.
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let queues = u16::try_from(cpus).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
        Self { queues, queue_size: QUEUE_SIZE_MAX, serial: "zfold".into() }
    }
}

/// Why a device is not offered.
#[derive(Debug)]
#[non_exhaustive]
pub enum VhostUserError {
    /// The number of queues is not from 1 to 64.
    Queues(u16),
    /// The queue size is not a power of two from 4 to 1024.
    QueueSize(u16),
    /// Another process serves the socket.
    InUse,
    /// The socket cannot be made.
    Socket(io::Error),
    /// The system has no thread or descriptor left.
    Start(io::Error),
}

impl fmt::Display for VhostUserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queues(queues) => {
                write!(f, "{queues} queues are not possible (choose 1 to {QUEUES_MAX})")
            }
            Self::QueueSize(size) => write!(
                f,
                "a queue of {size} entries is not possible (choose a power of two from 4 to \
                 {QUEUE_SIZE_MAX})"
            ),
            Self::InUse => {
                write!(f, "another process serves this socket (end it, or choose another path)")
            }
            Self::Socket(error) => write!(f, "the socket cannot be made: {error}"),
            Self::Start(error) => write!(f, "the server cannot be started: {error}"),
        }
    }
}

impl Error for VhostUserError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Socket(error) | Self::Start(error) => Some(error),
            _ => None,
        }
    }
}

/// A device offered on a socket. Dropping it ends the connection and removes the socket.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::sync::Arc;
/// use zfold_disk::Disk;
/// use zfold_disk::vhost_user::{VhostUserDoor, VhostUserOptions};
///
/// # fn serve(disk: Arc<Disk>) -> Result<(), Box<dyn std::error::Error>> {
/// let socket = Path::new("/run/disk.sock");
/// let door = VhostUserDoor::listen(disk, socket, VhostUserOptions::default())?;
/// // qemu-system-x86_64 -object memory-backend-memfd,id=m0,size=1G,share=on \
/// //   -machine memory-backend=m0 -chardev socket,id=c0,path=/run/disk.sock \
/// //   -device vhost-user-blk-pci,chardev=c0,num-queues=1 ...
/// # drop(door);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VhostUserDoor {
    path: PathBuf,
    listener: UnixListener,
    state: Arc<Mutex<State>>,
    server: Option<JoinHandle<()>>,
    _user: User,
}

/// What the door and its thread share.
#[derive(Default)]
struct State {
    closed: bool,
    /// Of the connection being served.
    connection: Option<ShutdownHandle>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected = self.connection.is_some();
        f.debug_struct("State")
            .field("closed", &self.closed)
            .field("connected", &connected)
            .finish()
    }
}

impl VhostUserDoor {
    /// Makes the socket `path` and serves `disk` to whoever connects. A socket that a dead server
    /// left behind is replaced.
    ///
    /// # Errors
    /// [`VhostUserError`]; no socket is left behind.
    pub fn listen(
        disk: Arc<Disk>,
        path: &Path,
        options: VhostUserOptions,
    ) -> Result<Self, VhostUserError> {
        let VhostUserOptions { queues, queue_size, .. } = options;
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(VhostUserError::Queues(queues));
        }
        if !(4..=QUEUE_SIZE_MAX).contains(&queue_size) || !queue_size.is_power_of_two() {
            return Err(VhostUserError::QueueSize(queue_size));
        }
        let ours = bind(path)?;
        let state = Arc::new(Mutex::new(State::default()));
        let _user = disk.attach("a guest may be connected");
        let mut door = Self { path: path.into(), listener: ours, state, server: None, _user };
        let theirs = door.listener.try_clone().map_err(VhostUserError::Start)?;
        let state = door.state.clone();
        let server = thread::Builder::new()
            .name("zfold-vhost".into())
            .spawn(move || serve(&disk, &options, theirs, &state))
            .map_err(VhostUserError::Start)?;
        door.server = Some(server);
        Ok(door)
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for VhostUserDoor {
    fn drop(&mut self) {
        let connection = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.connection.take()
        };
        if let Some(connection) = connection {
            connection.shutdown();
        }
        // Wakes the thread where it waits for a connection.
        let _ = rustix::net::shutdown(self.listener.as_fd(), Shutdown::Both);
        if let Some(server) = self.server.take() {
            // A panic of the thread has been reported by it.
            let _ = server.join();
        }
        // It may have been removed by somebody else.
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves one connection after the other until the door is closed.
fn serve(
    disk: &Arc<Disk>,
    options: &VhostUserOptions,
    listener: UnixListener,
    state: &Mutex<State>,
) {
    let mut listener = Listener::from(listener);
    while !lock(state).closed {
        if serve_connection(disk, options, &mut listener, state).is_err() && !lock(state).closed {
            thread::sleep(PAUSE);
        }
    }
}

/// Waits for a connection and serves it to its end.
fn serve_connection(
    disk: &Arc<Disk>,
    options: &VhostUserOptions,
    listener: &mut Listener,
    state: &Mutex<State>,
) -> io::Result<()> {
    let memory = Memory::new(GuestMemoryMmap::new());
    let device = Arc::new(Device::new(disk.clone(), options, memory.clone())?);
    let daemon = VhostUserDaemon::new("zfold-vhost-msg".into(), device.clone(), memory);
    let mut daemon = daemon.map_err(|error| io::Error::other(error.to_string()))?;
    if let Err(error) = device.attach(&daemon) {
        // Its threads would wait for ever for an end that nobody can tell them, and dropping it
        // would wait for them.
        Box::leak(Box::new(daemon));
        return Err(error);
    }
    let started = daemon.start(listener).map_err(|error| io::Error::other(error.to_string()));
    if started.is_ok() {
        let connection = daemon.shutdown_handle();
        {
            let mut state = lock(state);
            if state.closed {
                daemon.request_shutdown();
            }
            state.connection = connection;
        }
        // However the connection ended, the next one starts afresh.
        let _ = daemon.wait();
        lock(state).connection = None;
    }
    device.stop();
    started
}

/// Makes the socket, in place of one that nobody serves.
fn bind(path: &Path) -> Result<UnixListener, VhostUserError> {
    let error = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
        bound => return bound.map_err(VhostUserError::Socket),
    };
    if !fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        return Err(VhostUserError::Socket(error));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return Err(VhostUserError::InUse),
    }
    fs::remove_file(path).and_then(|()| UnixListener::bind(path)).map_err(VhostUserError::Socket)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
