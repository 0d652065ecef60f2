//! The frontends of a server: opened together, announced by their addresses, closed in order.
//!
//! If one cannot be opened, those opened before are dropped, which closes them, and no address has
//! been printed (R1). They are closed before a snapshot is taken (R3): the mount begins to end
//! first, on a thread of its own since that can take long, then the guest ends at once, and NBD
//! drains; a frontend still in use when the time is over is reported and left. The locks let
//! `close` take what it ends out of a shared value.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use zfold_disk::fuse::FuseFrontend;
use zfold_disk::nbd::{Address, Listener, NbdOptions, NbdServer, NbdStats, Tls, tls_config};
use zfold_disk::vhost_user::VhostUserFrontend;
use zfold_pool::Lock;

use super::device::Device;
use super::plan::DiskPlan;
use crate::control::runtime;
use crate::shared::exit::{Failure, remark};

/// The open frontends.
#[derive(Debug)]
pub(crate) struct Frontends {
    nbd: Arc<NbdServer>,
    /// In the order in which they were opened.
    addresses: Vec<String>,
    /// The Unix socket of NBD, for `$unixsocket`.
    unix: Option<String>,
    mount: Lock<Option<FuseFrontend>>,
    guest: Lock<Option<VhostUserFrontend>>,
}

impl Frontends {
    /// Opens the frontends that the plan of a device names. Without any, a Unix socket for NBD is
    /// made.
    ///
    /// # Errors
    /// Which one cannot be opened and why; those opened before are closed again.
    pub(crate) fn open(device: &Device) -> Result<Self, Failure> {
        let (args, disk) = (&device.plan.args, || Arc::clone(&device.disk));
        let failure = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let own = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", args.name));
        let nbd = NbdServer::new(disk(), nbd_options(device)?);
        let mut listeners = Listener::from_systemd().map_err(|error| failure(&error))?;
        for address in &args.nbd {
            listeners.push(Listener::bind(address).map_err(|error| failure(&error))?);
        }
        if listeners.is_empty() && args.fuse.is_none() && args.vhost_user.is_none() {
            let address = Address::Unix(runtime::nbd_path()?);
            listeners.push(Listener::bind(&address).map_err(|error| failure(&error))?);
        }
        let (mut addresses, mut unix) = (Vec::new(), None);
        let mount = args.fuse.as_ref().map(|path| {
            addresses.push(path.display().to_string());
            FuseFrontend::mount(disk(), path).map_err(|error| own(&error))
        });
        let mount = Lock::new(mount.transpose()?);
        let guest = args.vhost_user.as_ref().map(|path| {
            addresses.push(format!("vhost-user:{}", path.display()));
            VhostUserFrontend::listen(disk(), path, None).map_err(|error| own(&error))
        });
        let guest = Lock::new(guest.transpose()?);
        for listener in listeners {
            addresses.push(listener.uri(args.tls_required));
            if let Listener::Unix(socket, _) = &listener
                && let Some(path) =
                    socket.local_addr().ok().as_ref().and_then(|at| at.as_pathname())
            {
                unix.get_or_insert(path.display().to_string());
            }
            nbd.serve(listener).map_err(|error| failure(&format!("cannot serve NBD: {error}")))?;
        }
        Ok(Self { nbd, addresses, unix, mount, guest })
    }

    /// Returns the addresses of the device, an NBD URI or the path of a file each.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the path of the first Unix socket for NBD.
    pub(crate) fn unix(&self) -> Option<&str> {
        self.unix.as_deref()
    }

    /// Returns what the NBD frontend has served.
    pub(crate) fn nbd_stats(&self) -> NbdStats {
        self.nbd.stats()
    }

    /// Closes all frontends: no new client is accepted, and connected ones have `drain` to finish.
    pub(crate) fn close(&self, drain: Duration) {
        let deadline = Instant::now() + drain;
        let mount = self.mount.lock().take().map(close_mount);
        drop(self.guest.lock().take());
        if !self.nbd.shutdown(drain) {
            let seconds = drain.as_secs();
            remark(&format!("NBD clients did not finish in {seconds} s and were disconnected"));
        }
        if let Some((path, closed)) = mount {
            let left = deadline.saturating_duration_since(Instant::now());
            if closed.recv_timeout(left).is_err() {
                remark(&format!("{} is still in use; it ends with the server", path.display()));
            }
        }
    }
}

/// Unmounts a file on a thread of its own, because that can take until the last program that has it
/// open has closed it; returns its path, and the receiver that reports that it is done.
fn close_mount(mut frontend: FuseFrontend) -> (PathBuf, Receiver<()>) {
    let (done, closed) = mpsc::channel();
    let path = frontend.path().to_owned();
    std::thread::spawn(move || {
        if let Err(error) = frontend.umount() {
            // Dropping it removes its file, except for programs that have it open.
            remark(&format!("{}: {error}", frontend.path().display()));
        }
        drop(frontend);
        // No thread waits any longer once the time is over.
        let _ = done.send(());
    });
    (path, closed)
}

fn nbd_options(device: &Device) -> Result<NbdOptions, Failure> {
    let DiskPlan { args, codec, .. } = &device.plan;
    let mut options = NbdOptions::default()
        .with_name(&args.name)
        .with_description(format!("compressed in memory with {codec}"))
        .with_max_connections(args.max_connections as usize);
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let config = tls_config(cert, key, args.tls_ca.as_deref());
        let config = config.map_err(|error| Failure::new(error.to_string()))?;
        options.tls = if args.tls_required { Tls::Required(config) } else { Tls::Allowed(config) };
    }
    Ok(options)
}
