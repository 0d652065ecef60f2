//! The frontends of a server: opened together, announced by their addresses, closed in order.
//!
//! If one cannot be opened, those opened before are dropped, which closes them, and no address has
//! been printed (R1). They are closed before a snapshot is taken (R3): mounts begin to end first,
//! each on a thread of its own since that can take long, then guests and block devices end at once,
//! and NBD drains; frontends still in use when the time is over are reported and left. The locks
//! let `close` take what it ends out of a shared value; nothing else changes the lists, and each is
//! held while its frontends are dropped or handed on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use zfold_disk::fuse::FuseFrontend;
use zfold_disk::nbd::{
    Address, Export, Listener, NbdOptions, NbdServer, NbdStats, Tls, tls_config,
};
use zfold_disk::vhost_user::{VhostUserFrontend, VhostUserOptions};
use zfold_pool::Lock;

use super::device::Device;
use super::plan::{DiskPlan, TlsPlan};
use crate::control::runtime;
use crate::shared::exit::{Failure, remark};

/// The open frontends.
#[derive(Debug)]
pub(crate) struct Frontends {
    nbd: Arc<NbdServer>,
    /// Addresses of the devices, by name, in the order in which they were opened.
    addresses: Vec<(String, String)>,
    /// The Unix socket of NBD, for `$unixsocket`.
    unix: Option<String>,
    mounts: Lock<Vec<FuseFrontend>>,
    guests: Lock<Vec<VhostUserFrontend>>,
    #[cfg(feature = "ublk")]
    blocks: Lock<Vec<zfold_disk::ublk::UblkFrontend>>,
}

impl Frontends {
    /// Opens the frontends of `plan` to `devices`. Without any, a Unix socket for NBD is made.
    ///
    /// # Errors
    /// Which one cannot be opened and why; those opened before are closed again.
    pub(crate) fn open(plan: &DiskPlan, devices: &[Device]) -> Result<Self, Failure> {
        let mut frontends = Self {
            nbd: NbdServer::new(devices.iter().map(export).collect(), nbd_options(plan)?),
            addresses: Vec::new(),
            unix: None,
            mounts: Lock::default(),
            guests: Lock::default(),
            #[cfg(feature = "ublk")]
            blocks: Lock::default(),
        };
        let failure = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let mut listeners = Listener::from_systemd().map_err(|error| failure(&error))?;
        for address in &plan.server.nbd {
            listeners.push(Listener::bind(address).map_err(|error| failure(&error))?);
        }
        let others = devices.iter().any(|device| device.plan.has_frontend());
        if listeners.is_empty() && !others {
            let address = Address::Unix(runtime::nbd_path()?);
            listeners.push(Listener::bind(&address).map_err(|error| failure(&error))?);
        }
        for device in devices {
            frontends.open_own(device)?;
        }
        for listener in listeners {
            frontends.open_nbd(listener, plan, devices)?;
        }
        Ok(frontends)
    }

    fn open_nbd(
        &mut self,
        listener: Listener,
        plan: &DiskPlan,
        devices: &[Device],
    ) -> Result<(), Failure> {
        let uri = listener.uri(plan.tls.as_ref().is_some_and(|tls| tls.required));
        for (index, device) in devices.iter().enumerate() {
            let name = &device.plan.name;
            self.addresses.push((name.clone(), uri_of(&uri, name, index == 0)));
        }
        if let Listener::Unix(socket, _) = &listener
            && let Some(path) = socket.local_addr().ok().as_ref().and_then(|at| at.as_pathname())
        {
            self.unix.get_or_insert(path.display().to_string());
        }
        let served = self.nbd.serve(listener);
        served.map_err(|error| Failure::new(format!("cannot serve NBD: {error}")))
    }

    /// Opens the frontends that a device has for itself.
    fn open_own(&mut self, device: &Device) -> Result<(), Failure> {
        let (plan, disk) = (&device.plan, || Arc::clone(&device.disk));
        let failure =
            |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", plan.name));
        if let Some(path) = &plan.settings.fuse {
            let frontend = FuseFrontend::mount(disk(), path);
            self.mounts.lock().push(frontend.map_err(|error| failure(&error))?);
            self.addresses.push((plan.name.clone(), path.display().to_string()));
        }
        if let Some(path) = &plan.settings.vhost_user {
            let frontend = VhostUserFrontend::listen(disk(), path, VhostUserOptions::default());
            self.guests.lock().push(frontend.map_err(|error| failure(&error))?);
            self.addresses.push((plan.name.clone(), format!("vhost-user:{}", path.display())));
        }
        if plan.settings.ublk {
            self.open_ublk(device)?;
        }
        Ok(())
    }

    #[cfg(feature = "ublk")]
    fn open_ublk(&mut self, device: &Device) -> Result<(), Failure> {
        use zfold_disk::ublk::UblkFrontend;
        let name = &device.plan.name;
        let frontend = UblkFrontend::add(Arc::clone(&device.disk))
            .map_err(|error| Failure::new(format!("{name}: {error}")))?;
        self.addresses.push((name.clone(), frontend.path().display().to_string()));
        self.blocks.lock().push(frontend);
        Ok(())
    }

    #[cfg(not(feature = "ublk"))]
    fn open_ublk(&mut self, _: &Device) -> Result<(), Failure> {
        unreachable!("the plan refuses it")
    }

    /// Returns the addresses of the device of that name, an NBD URI or the path of a file each.
    pub(crate) fn addresses(&self, name: &str) -> Vec<String> {
        let own = self.addresses.iter().filter(|(of, _)| of == name);
        own.map(|(_, address)| address.clone()).collect()
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
        let mounts: Vec<_> = self.mounts.lock().drain(..).map(close_mount).collect();
        self.guests.lock().clear();
        #[cfg(feature = "ublk")]
        self.blocks.lock().clear();
        if !self.nbd.shutdown(drain) {
            let seconds = drain.as_secs();
            remark(&format!("NBD clients did not finish in {seconds} s and were disconnected"));
        }
        for (path, closed) in mounts {
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

fn export(device: &Device) -> Export {
    Export::new(device.plan.name.clone(), Arc::clone(&device.disk))
        .with_description(format!("compressed in memory with {}", device.plan.codec))
        .with_read_only(device.plan.settings.read_only)
}

fn nbd_options(plan: &DiskPlan) -> Result<NbdOptions, Failure> {
    let mut options = NbdOptions::default();
    if let Some(number) = plan.server.max_connections {
        options.max_connections = number as usize;
    }
    if let Some(TlsPlan { cert, key, ca, required }) = &plan.tls {
        let config = tls_config(cert, key, ca.as_deref());
        let config = config.map_err(|error| Failure::new(error.to_string()))?;
        options.tls = if *required { Tls::Required(config) } else { Tls::Allowed(config) };
    }
    Ok(options)
}

/// Returns the URI of an export: that of the listener for the first one, which is the default,
/// with a name for others.
fn uri_of(listener: &str, name: &str, first: bool) -> String {
    if first {
        return listener.to_owned();
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    match listener.split_once("///") {
        Some((scheme, rest)) => format!("{scheme}///{encoded}{rest}"),
        None => format!("{listener}{encoded}"),
    }
}
