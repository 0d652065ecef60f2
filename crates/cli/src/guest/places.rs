//! Where the sockets of a guest server lie, and who may connect.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use zfold_disk::nbd::{Address, Listener, SocketFile};

use crate::args::GuestServeArgs;
use crate::control::runtime;
use crate::shared::exit::Failure;

/// A folder, or the runtime directory; and the permissions of sockets.
#[derive(Clone, Debug)]
pub(super) struct Places {
    folder: Option<PathBuf>,
    mode: u32,
}

/// A socket that listens, and its file.
pub(super) type Bound = (PathBuf, UnixListener, Option<SocketFile>);

impl Places {
    /// # Errors
    /// The current directory is gone.
    pub(super) fn of(args: &GuestServeArgs) -> std::io::Result<Self> {
        let folder = args.sockets.as_deref().map(std::path::absolute).transpose()?;
        Ok(Self { folder, mode: args.socket_mode.0 })
    }

    /// Binds the socket at which guests of an image connect.
    pub(super) fn image(&self, name: &str) -> Result<Bound, String> {
        self.bind(name, "sock", runtime::guest_path)
    }

    /// Binds the socket at which a machine is received.
    pub(super) fn machine(&self, name: &str) -> Result<Bound, String> {
        self.bind(name, "receive", runtime::receive_path)
    }

    /// Binds a socket with this suffix in the folder, or where `elsewhere` says.
    fn bind(
        &self,
        name: &str,
        suffix: &str,
        elsewhere: impl Fn(&str) -> Result<PathBuf, Failure>,
    ) -> Result<Bound, String> {
        let path = match &self.folder {
            Some(folder) => folder.join(format!("{name}.{suffix}")),
            None => elsewhere(name).map_err(|failure| failure.line().to_owned())?,
        };
        let failed = |error: &dyn std::fmt::Display| format!("image {name}: {error}");
        let bound = Listener::bind_for(&Address::Unix(path.clone()), self.mode);
        let bound = bound.map_err(|error| failed(&error))?;
        let Listener::Unix(listener, file) = bound else { unreachable!("a path was asked for") };
        Ok((path, listener, file))
    }
}
