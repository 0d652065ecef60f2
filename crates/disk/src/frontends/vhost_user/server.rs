//! The socket, and one connection after the other.
//!
//! One thread waits for a connection, serves it to its end and waits for the next. The frontend
//! that is dropped sets `closed`, ends the connection that is under way, wakes the thread where it
//! waits for another, and joins it. The thread reads `closed` under the same lock under which it
//! registers a connection, so a connection that begins meanwhile is ended by one of the two. The
//! lock is held for moments, never while a connection is served.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;
use vhost::vhost_user::Listener;
use vhost_user_backend::{ShutdownHandle, VhostUserDaemon};
use vm_memory::GuestMemoryMmap;
use zfold_store::pool::Lock;

use super::device::Device;
use super::error::{QUEUES_MAX, VhostUserError};
use super::vring::Memory;
use crate::disk::Disk;

/// How long to wait where the system has no descriptors or memory for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A device offered on a socket. Dropping it ends the connection and removes the socket.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::sync::Arc;
/// use zfold_disk::Disk;
/// use zfold_disk::vhost_user::VhostUserFrontend;
///
/// # fn serve(disk: Arc<Disk>) -> Result<(), Box<dyn std::error::Error>> {
/// let socket = Path::new("/run/disk.sock");
/// let frontend = VhostUserFrontend::listen(disk, socket, None)?;
/// // qemu-system-x86_64 -object memory-backend-memfd,id=m0,size=1G,share=on \
/// //   -machine memory-backend=m0 -chardev socket,id=c0,path=/run/disk.sock \
/// //   -device vhost-user-blk-pci,chardev=c0,num-queues=1 ...
/// # drop(frontend);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VhostUserFrontend {
    path: PathBuf,
    listener: UnixListener,
    state: Arc<Lock<Served>>,
    server: Option<JoinHandle<()>>,
}

/// The state that the frontend and its thread share.
#[derive(Default)]
struct Served {
    closed: bool,
    /// Of the connection being served.
    connection: Option<ShutdownHandle>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connected = self.connection.is_some();
        f.debug_struct("Served")
            .field("closed", &self.closed)
            .field("connected", &connected)
            .finish()
    }
}

impl VhostUserFrontend {
    /// Makes the socket `path` and serves `disk` to the monitor that connects, with 1 to 64 queues,
    /// each of which has a thread; one for each CPU of this machine without a number. Monitors
    /// refuse a device with fewer than they want, which by default is one for each of the guest's
    /// CPUs. A socket that a dead server left behind is replaced.
    ///
    /// # Errors
    /// [`VhostUserError`]; no socket is left behind.
    pub fn listen(
        disk: Arc<Disk>,
        path: &Path,
        queues: Option<u16>,
    ) -> Result<Self, VhostUserError> {
        let cpus = || thread::available_parallelism().map_or(1, usize::from);
        let queues = queues.unwrap_or_else(|| cpus().min(QUEUES_MAX.into()) as u16);
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(VhostUserError::Queues(queues));
        }
        let ours = bind(path)?;
        let state = Arc::new(Lock::new(Served::default()));
        let mut frontend = Self { path: path.into(), listener: ours, state, server: None };
        let theirs = frontend.listener.try_clone().map_err(VhostUserError::Start)?;
        let state = frontend.state.clone();
        let server = thread::Builder::new()
            .name("zfold-vhost".into())
            .spawn(move || serve(&disk, queues, theirs, &state))
            .map_err(VhostUserError::Start)?;
        frontend.server = Some(server);
        Ok(frontend)
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for VhostUserFrontend {
    fn drop(&mut self) {
        let connection = {
            let mut state = self.state.lock();
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
        // Another process may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves one connection after the other until the frontend is closed.
fn serve(disk: &Arc<Disk>, queues: u16, listener: UnixListener, state: &Lock<Served>) {
    let mut listener = Listener::from(listener);
    while !state.lock().closed {
        if serve_connection(disk, queues, &mut listener, state).is_err() && !state.lock().closed {
            thread::sleep(PAUSE);
        }
    }
}

/// Waits for a connection and serves it to its end.
fn serve_connection(
    disk: &Arc<Disk>,
    queues: u16,
    listener: &mut Listener,
    state: &Lock<Served>,
) -> io::Result<()> {
    let memory = Memory::new(GuestMemoryMmap::new());
    let device = Arc::new(Device::new(disk.clone(), queues)?);
    let daemon = VhostUserDaemon::new("zfold-vhost-msg".into(), device.clone(), memory);
    let mut daemon = daemon.map_err(|error| io::Error::other(error.to_string()))?;
    if let Err(error) = device.attach(&daemon) {
        // Its threads would wait for ever for an end that cannot reach them, and dropping it would
        // wait for them.
        Box::leak(Box::new(daemon));
        return Err(error);
    }
    let started = daemon.start(listener).map_err(|error| io::Error::other(error.to_string()));
    if started.is_ok() {
        let connection = daemon.shutdown_handle();
        device.connect(connection.clone());
        {
            let mut state = state.lock();
            if state.closed {
                daemon.request_shutdown();
            }
            state.connection = connection;
        }
        // However the connection ended, the next one starts afresh.
        let _ = daemon.wait();
        state.lock().connection = None;
    }
    device.stop();
    started
}

/// Makes the socket, in place of one that no process serves.
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
