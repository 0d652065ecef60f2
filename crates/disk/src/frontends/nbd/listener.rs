//! Where clients connect: Unix and TCP sockets, bound here or inherited from a service manager.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, chmod, fchmod, fstat, open};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;
use thiserror::Error;

use super::socket::Socket;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// An address to listen at: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket's path.
    Unix(PathBuf),
    /// `HOST:PORT`; port 0 is any that is free.
    Tcp(String),
}

/// A text that is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an address: give unix:PATH or tcp:HOST:PORT")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let tcp = |rest: &str| {
            let (host, port) = rest.rsplit_once(':')?;
            (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| Self::Tcp(rest.into()))
        };
        let unix = |path: &str| (!path.is_empty()).then(|| Self::Unix(path.into()));
        let address = match text.split_once(':') {
            Some(("unix", path)) => unix(path),
            Some(("tcp", rest)) => tcp(rest),
            _ => None,
        };
        address.ok_or_else(|| AddressError(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Why there is no socket to listen at. Every message names it and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A Unix socket's path has at most 107 bytes.
    #[error("unix:{0}: the path is too long for a socket; choose one below 108 bytes")]
    PathTooLong(PathBuf),
    /// A file that is no socket is in the way.
    #[error("unix:{0}: a file that is not a socket is in the way; choose another path")]
    NotASocket(PathBuf),
    /// A server listens there already.
    #[error("unix:{0}: a server is already listening there; stop it or choose another path")]
    InUse(PathBuf),
    /// The system refuses.
    #[error("{address}: {source}{}", remedy(.source))]
    System {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// An inherited descriptor is no listening stream socket; its number, from 0 on.
    #[error(
        "inherited descriptor {0} is not a listening stream socket; check ListenStream= in the \
         socket unit"
    )]
    Inherited(usize),
}

/// Returns what to do about an address, after what the system says.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; stop the server that uses it or choose another address",
        io::ErrorKind::PermissionDenied => "; choose an address that this user may use",
        io::ErrorKind::NotFound => "; create the directory first",
        _ => "",
    }
}

/// A socket that clients connect to.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket; its file, if it is ours.
    Unix(UnixListener, Option<SocketFile>),
    /// A TCP socket.
    Tcp(TcpListener),
}

/// The file of a Unix socket, removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Returns the file of a socket that was just bound, with the permissions that the umask has
    /// taken from it. By then others who may write to the folder may have put another file there.
    fn new(path: &Path, mode: Mode) -> io::Result<Self> {
        let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&file)?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind != FileType::Socket || found.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("another file has taken its place"));
        }
        let file_of_it = Self { path: path.into(), device: found.st_dev, inode: found.st_ino };
        if Mode::from_raw_mode(found.st_mode) != mode {
            // The very file, wherever its name leads by now.
            chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
        }
        Ok(file_of_it)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server's file in its place stays.
        let ours = |meta: &fs::Metadata| (meta.dev(), meta.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| ours(&meta)) {
            // There is no caller to report to; the next server that listens there replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens at `address`. A Unix socket is for its owner only (mode 0600), and takes the place
    /// of one whose server is dead.
    ///
    /// # Errors
    /// [`ListenError`]; nothing is left behind.
    pub fn bind(address: &Address) -> Result<Self, ListenError> {
        Self::bind_for(address, 0o600)
    }

    /// Does the same with other permissions of a Unix socket's file, whatever the umask. At no time
    /// does it have more, also in a folder where others may write.
    ///
    /// # Errors
    /// Same as [`bind`](Self::bind).
    pub fn bind_for(address: &Address, mode: u32) -> Result<Self, ListenError> {
        let system = |source| ListenError::System { address: address.clone(), source };
        match address {
            Address::Unix(path) => {
                let too_long = |_| ListenError::PathTooLong(path.clone());
                let socket = SocketAddrUnix::new(path).map_err(too_long)?;
                remove_stale(path, system)?;
                let (listener, file) =
                    bind_unix(path, &socket, Mode::from_raw_mode(mode)).map_err(system)?;
                Ok(Self::Unix(listener, Some(file)))
            }
            Address::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).map_err(system)?)),
        }
    }

    /// Returns the sockets that a service manager passed on (`LISTEN_FDS`); none if it did not.
    ///
    /// # Errors
    /// [`ListenError::Inherited`] if one of them is no listening Unix or TCP socket.
    pub fn from_systemd() -> Result<Vec<Self>, ListenError> {
        let mut passed = listenfd::ListenFd::from_env();
        (0..passed.len())
            .map(|n| {
                // A file of the wrong kind stays there for the second try.
                if let Ok(Some(listener)) = passed.take_unix_listener(n) {
                    return Ok(Self::Unix(listener, None));
                }
                match passed.take_tcp_listener(n) {
                    Ok(Some(listener)) => Ok(Self::Tcp(listener)),
                    _ => Err(ListenError::Inherited(n)),
                }
            })
            .collect()
    }

    /// Returns the address as clients want it: `nbd+unix:///?socket=PATH` or `nbd://HOST:PORT/`,
    /// with `nbds` if `tls`.
    #[must_use]
    pub fn uri(&self, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(listener, _) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                let path = path.map(|path| percent_encode(path.as_os_str().as_encoded_bytes()));
                format!("{scheme}+unix:///?socket={}", path.unwrap_or_default())
            }
            Self::Tcp(listener) => {
                let address = listener.local_addr().map(|address: SocketAddr| address.to_string());
                format!("{scheme}://{}/", address.unwrap_or_default())
            }
        }
    }

    /// Returns the socket, and its file if it is ours.
    #[must_use]
    pub fn into_parts(self) -> (OwnedFd, Option<SocketFile>) {
        match self {
            Self::Unix(listener, file) => (listener.into(), file),
            Self::Tcp(listener) => (listener.into(), None),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener, _) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    /// Accepts a connection; `WouldBlock` if none waits.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener, _) => Ok(listener.accept()?.0.into()),
            Self::Tcp(listener) => Ok(listener.accept()?.0.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

fn bind_unix(
    path: &Path,
    address: &SocketAddrUnix,
    mode: Mode,
) -> io::Result<(UnixListener, SocketFile)> {
    let socket = socket_of(mode)?;
    bind(&socket, address)?;
    let file = SocketFile::new(path, mode)?;
    listen(&socket, BACKLOG)?;
    Ok((socket.into(), file))
}

fn socket_of_unix() -> io::Result<OwnedFd> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(socket_with(unix, stream, SocketFlags::CLOEXEC, None)?)
}

/// Returns a socket whose file will have at most these permissions.
fn socket_of(mode: Mode) -> io::Result<OwnedFd> {
    let socket = socket_of_unix()?;
    // Linux takes the file's mode from here, less the umask. Once it has a name, the name may lead
    // elsewhere.
    fchmod(&socket, mode)?;
    Ok(socket)
}

/// Connects to a Unix socket, and waits no longer than this until its server has room for one more:
/// one that was stopped accepts none, and when 128 connections wait there, the next would
/// wait for ever.
///
/// # Errors
/// `WouldBlock` if there is no room; `ConnectionRefused` if no server listens; the system's.
pub fn connect_within(path: &Path, wait: Duration) -> io::Result<UnixStream> {
    let socket = socket_of_unix()?;
    set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
    let address = SocketAddrUnix::new(path)?;
    rustix::io::retry_on_intr(|| connect(&socket, &address))?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// How long a socket's server is waited for where its answer does not matter.
const MOMENT: Duration = Duration::from_millis(1);

/// Returns whether a server listens at a Unix socket; it need not be able to answer.
///
/// # Errors
/// It cannot be reached, for another reason than that none listens.
pub fn is_listening(path: &Path) -> io::Result<bool> {
    match connect_within(path, MOMENT) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(true),
    }
}

/// Removes a socket at which no server listens any longer.
fn remove_stale(path: &Path, system: impl Fn(io::Error) -> ListenError) -> Result<(), ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system(error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(ListenError::NotASocket(path.into())),
        Ok(_) => match is_listening(path) {
            Ok(false) => fs::remove_file(path).map_err(system),
            Ok(true) => Err(ListenError::InUse(path.into())),
            Err(error) => Err(system(error)),
        },
    }
}

/// Encodes a path for the query of a URI.
fn percent_encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("a file").mode() & 0o777
    }

    #[test]
    fn a_socket_is_its_owners_before_it_has_a_name() {
        let socket = socket_of(Mode::from_raw_mode(0o600)).expect("a socket");
        assert_eq!(fstat(&socket).expect("a mode").st_mode & 0o777, 0o600);
    }

    #[test]
    fn a_socket_has_the_permissions_that_it_was_given_whatever_the_umask() {
        let folder = tempfile::tempdir().expect("a folder");
        for mode in [0o600, 0o660, 0o666] {
            let path = folder.path().join(format!("{mode:o}"));
            let bound = Listener::bind_for(&Address::Unix(path.clone()), mode).expect("bound");
            assert_eq!(mode_of(&path), mode);
            drop(bound);
            assert!(!path.exists());
        }
    }

    /// As one that was stopped, after some minutes of `zfold top`.
    #[test]
    fn a_server_that_accepts_nothing_is_there_and_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        let _server = Listener::bind_for(&address, 0o600).expect("bound");
        let room = (0..2 * BACKLOG).take_while(|_| connect_within(&path, MOMENT).is_ok());
        assert!(room.count() <= BACKLOG as usize + 1);
        assert!(is_listening(&path).expect("reached"));
        let again = Listener::bind_for(&address, 0o600);
        assert!(matches!(again, Err(ListenError::InUse(_))), "{again:?}");
    }

    /// What others have put in its place by then.
    #[test]
    fn no_other_file_gets_the_permissions_of_a_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, file) = (folder.path().join("socket"), folder.path().join("file"));
        let _socket = Listener::bind(&Address::Unix(socket.clone())).expect("bound");
        fs::write(&file, "").expect("written");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a mode");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).expect("a link");
        for path in [&file, &link] {
            SocketFile::new(path, Mode::from_raw_mode(0o666)).expect_err("it is no socket");
        }
        assert_eq!((mode_of(&socket), mode_of(&file)), (0o600, 0o600));
    }
}
