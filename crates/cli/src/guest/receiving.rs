//! Machines that are received and sent, as commands ask for it.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use zfold_guest::{ImageError, ReceiveError, Received, Restore, check_name, receive, restore};

use super::failed::LATE;
use super::machines::Coming;
use super::server::{Served, found};
use crate::shared::exit::remark;

/// How long a machine is awaited unless a command says so.
const LONG: Duration = Duration::from_secs(600);

/// Wait between two looks whether a machine is awaited still.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Served {
    /// Awaits a machine; returns where to send it.
    ///
    /// # Errors
    /// There can be no such image, or no socket.
    pub(super) fn receive(
        self: &Arc<Self>,
        name: &str,
        base: Option<&str>,
        within: Option<&str>,
    ) -> Result<Value, String> {
        let within = within.map_or(Ok(LONG), |ms| ms.parse().map(Duration::from_millis));
        let within = within.map_err(|_| "a time is milliseconds".to_owned())?;
        let said = |error: ImageError| error.to_string();
        check_name(name).map_err(said)?;
        if self.images.contains(name) {
            return Err(said(ImageError::Exists(name.to_owned())));
        }
        base.map(|base| self.images.claim(base).map(drop)).transpose().map_err(said)?;
        let ((path, listener, file), coming) = self.machines.begin(name)?;
        let (served, mine) = (Arc::clone(self), Arc::clone(&coming));
        let (name, base) = (name.to_owned(), base.map(str::to_owned));
        let work = move || {
            let stream = served.awaited(&listener, &mine, within);
            drop((listener, file));
            let end = stream.and_then(|stream| served.take(&name, base.as_deref(), stream));
            mine.ends(end);
        };
        let spawned = thread::Builder::new().name("zfold-receive".to_owned()).spawn(work);
        spawned.map_err(|error| {
            let failed = format!("cannot start a thread: {error}");
            coming.ends(Err(failed.clone()));
            failed
        })?;
        Ok(json!({ "socket": path }))
    }

    /// Waits until a VMM connects.
    fn awaited(
        &self,
        listener: &UnixListener,
        coming: &Coming,
        within: Duration,
    ) -> Result<UnixStream, String> {
        let began = Instant::now();
        loop {
            if began.elapsed() > within {
                return Err(format!(
                    "no VMM has connected within {} s: see what ch-remote says, or give a longer \
                     --timeout",
                    within.as_secs_f32()
                ));
            }
            if self.is_ending() {
                return Err(LATE.to_owned());
            }
            if coming.is_forgotten() {
                return Err("nobody waits for it any longer".to_owned());
            }
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            if poll(&mut fds, Some(&LOOK)).is_ok_and(|ready| ready > 0) {
                let accepted = listener.accept().map_err(|error| error.to_string())?;
                return Ok(accepted.0);
            }
        }
    }

    /// Makes an image of the machine that a VMM sends.
    fn take(&self, name: &str, base: Option<&str>, stream: UnixStream) -> Result<Value, String> {
        let kept = |_: &_| self.keep();
        let received = receive(stream, &self.images, (name, base), kept);
        let Received { imported, was_heard, .. } = received.map_err(|error| {
            if matches!(error, ReceiveError::Entry(_)) {
                // It had its name for a moment, so the process that stands by may have it.
                self.renewed();
            }
            error.to_string()
        })?;
        if !was_heard {
            remark(&format!(
                "{name} is saved, but cloud-hypervisor did not hear that: end its machine before \
                 you restore it"
            ));
        }
        Ok(found(&imported))
    }

    /// Returns what was saved of a machine that was to come, once it is.
    ///
    /// # Errors
    /// Why it does not come; or none is awaited under that name.
    pub(super) fn received(&self, name: &str) -> Result<Value, String> {
        let end = self.machines.ask(name).ok_or_else(|| format!("no machine {name} is awaited"))?;
        Ok(end.transpose()?.map_or_else(|| json!({}), |saved| json!({ "saved": saved })))
    }

    /// Restores a machine from an image, at the VMM that listens at a socket.
    ///
    /// # Errors
    /// Why it could not be done.
    pub(super) fn send(&self, name: &str, socket: &Path, how: &[&str]) -> Result<Value, String> {
        let mut restoring = Restore::default();
        for word in how {
            match *word {
                "resume" => restoring.resume = true,
                "on-demand" => restoring.on_demand = true,
                word => return Err(format!("'{word}' is not resume or on-demand")),
            }
        }
        if self.is_ending() {
            return Err(LATE.to_owned());
        }
        let demand = (&self.machines.demand, Some(&self.link), remark);
        let restored = restore(&self.images, name, socket, restoring, demand);
        let restored = restored.map_err(|error| error.to_string())?;
        Ok(json!({ "pages": restored.pages, "written_pages": restored.written_pages }))
    }
}
