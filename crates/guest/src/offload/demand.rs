//! Restores on demand: pages are written into a machine's files as its VMM asks for them, and in
//! between all others.
//!
//! One thread does both for a machine, so nothing is written twice from the image (offload/O5). The
//! VMM asks for
//! every page, by and by, and closes the connection when it has all.
//!
//! The lock guards a number alone.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use thiserror::Error;
use zfold_uffd::page::PAGE;

use super::filling::{Filling, Unit};
use super::layout::Layout;
use super::socket::{Broken, Peer};
use super::wire::{Answer, BadHeader, Command, FAULT, Fault, HEADER, ROLE_FAULT, Request};
use crate::images::{Claim, ImageError, Images};

/// How long a VMM may take for the rest of a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest range that is asked for at once, in bytes.
const LEN_MAX: u64 = 2 << 20;

/// The machines that get pages on demand. Clones are the same.
#[derive(Clone, Default)]
pub struct OnDemand(Arc<Inner>);

#[derive(Default)]
struct Inner {
    number: Mutex<usize>,
    changed: Condvar,
}

impl std::fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnDemand").field(&self.number()).finish()
    }
}

/// A machine of these.
struct One(OnDemand);

impl OnDemand {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many there are.
    #[must_use]
    pub fn number(&self) -> usize {
        *self.lock()
    }

    /// Waits until there are none, at most for so long; returns how many are left.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> usize {
        let waited = self.0.changed.wait_timeout_while(self.lock(), patience, |left| *left > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn enter(&self) -> One {
        *self.lock() += 1;
        One(self.clone())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.0.changed.notify_all();
    }
}

/// Why pages are no longer put in.
#[derive(Debug, Error)]
enum Ended {
    #[error("{0}")]
    Broken(#[from] Broken),
    #[error("it sent something else than a page fault")]
    Odd,
    #[error("it asks for memory that it does not have (address {:#x}, {} bytes)", .0.at, .0.len)]
    Stray(Fault),
    #[error("its memory cannot be written: {0}")]
    Full(io::Error),
}

impl From<BadHeader> for Ended {
    fn from(error: BadHeader) -> Self {
        Self::Broken(error.into())
    }
}

/// A machine, its files, and the connection by which pages are asked for.
pub(super) struct Demand {
    pub(super) images: Arc<Images>,
    pub(super) image: Claim,
    pub(super) layout: Layout,
    pub(super) files: Vec<File>,
}

/// What is heard of a machine that gets pages.
pub(super) struct Begun {
    /// Gets a word when the first page was asked for.
    pub(super) asked: Receiver<()>,
    /// To end it.
    pub(super) stream: UnixStream,
}

impl Demand {
    /// Starts a thread that puts in pages until the VMM has them all. `tell` is given a line if it
    /// ends before that.
    ///
    /// # Errors
    /// There is no thread, or the VMM takes no connection.
    pub(super) fn start(
        self,
        stream: UnixStream,
        all: &OnDemand,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<Begun, Broken> {
        let begun = stream.try_clone()?;
        let peer = Peer::new(stream, PATIENCE);
        peer.write(&ROLE_FAULT, None)?;
        let (first, asked) = mpsc::channel();
        let one = all.enter();
        let slots = self.layout.slots.iter().map(|slot| slot.pages.clone()).collect();
        let mut serving =
            Serving { demand: self, filling: Filling::new(slots), peer, first: Some(first) };
        let run = move || {
            let _one = one;
            if let Err(error) = serving.run() {
                let name = serving.demand.image.name();
                tell(&format!(
                    "a machine restored from {name} gets no more pages: {error}; end it, and \
                     restore it again"
                ));
            }
        };
        thread::Builder::new().name("zfold-demand".to_owned()).spawn(run)?;
        Ok(Begun { asked, stream: begun })
    }
}

struct Serving {
    demand: Demand,
    filling: Filling,
    peer: Peer,
    first: Option<Sender<()>>,
}

impl Serving {
    fn run(&mut self) -> Result<(), Ended> {
        let mut buffer = Vec::new();
        let mut next = self.filling.next();
        loop {
            if self.is_asked(next.is_none())? {
                match self.answer(&mut buffer) {
                    // It has all pages, or is gone.
                    Err(Ended::Broken(Broken::Left)) => return Ok(()),
                    answered => answered?,
                }
            } else if let Some(unit) = next {
                let pages = self.filling.pages(unit);
                // It may have been asked for meanwhile.
                if !self.filling.missing(unit.0, &pages).is_empty() {
                    // A page that cannot be loaded is refused if it is asked for (O6).
                    let _ = self.fill(unit, &mut buffer)?;
                }
                next = self.filling.next();
            }
        }
    }

    /// Returns whether there is a message; may wait for one.
    fn is_asked(&self, may_wait: bool) -> Result<bool, Ended> {
        let mut fds = [PollFd::new(&self.peer, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, if may_wait { None } else { Some(&now) }) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Ended::Broken(error.into())),
        }
    }

    /// Answers a message.
    fn answer(&mut self, buffer: &mut Vec<u8>) -> Result<(), Ended> {
        let mut header = [0; HEADER];
        self.peer.read(&mut header)?;
        if Request::decode(&header)? != Request::new(Command::PageFault, FAULT as u64) {
            return self.refuse(Ended::Odd);
        }
        let mut fault = [0; FAULT];
        self.peer.read(&mut fault)?;
        let fault = Fault::decode(&fault);
        let found = self.demand.layout.find(fault.at, fault.len);
        let Some((slot, pages)) = found.filter(|_| fault.len <= LEN_MAX) else {
            return self.refuse(Ended::Stray(fault));
        };
        let mut is_there = true;
        for unit in self.filling.missing(slot, &pages) {
            is_there &= match self.fill(unit, buffer) {
                Ok(filled) => filled.is_ok(),
                Err(ended) => return self.refuse(ended),
            };
        }
        if is_there && let Err(ended) = self.renew(slot, &pages) {
            return self.refuse(ended);
        }
        self.peer.answer(if is_there { Answer::DONE } else { Answer::REFUSED })?;
        if let Some(first) = self.first.take() {
            // Nobody waits for it any longer.
            let _ = first.send(());
        }
        Ok(())
    }

    /// Writes zeros where the machine has given up pages of a range, all of which were written.
    /// Only a thread of the VMM that waits for them asks, so nothing else is written there then.
    fn renew(&self, slot: usize, pages: &Range<u64>) -> Result<(), Ended> {
        let (file, slot) = (&self.demand.files[slot], &self.demand.layout.slots[slot]);
        for page in pages.clone() {
            let at = slot.at(page);
            let found = seek(file, SeekFrom::Data(at));
            if found != Ok(at) {
                file.write_all_at(&[0; PAGE], at).map_err(Ended::Full)?;
            }
        }
        Ok(())
    }

    fn refuse(&self, ended: Ended) -> Result<(), Ended> {
        // What it did is what is reported.
        let _ = self.peer.answer(Answer::REFUSED);
        Err(ended)
    }

    /// Writes a unit, zeros included: a page that was asked for has to be in the file.
    ///
    /// # Errors
    /// Outer: the file cannot be written, so what is in it is unknown. Inner: a page cannot be
    /// loaded, and nothing was written.
    fn fill(&mut self, unit: Unit, buffer: &mut Vec<u8>) -> Result<Result<(), ImageError>, Ended> {
        let Demand { images, image, layout, files } = &self.demand;
        let pages = self.filling.pages(unit);
        buffer.clear();
        buffer.resize((pages.end - pages.start) as usize * PAGE, 0);
        for (page, bytes) in pages.clone().zip(buffer.chunks_exact_mut(PAGE)) {
            let _open = images.open();
            if let Err(source) = image.load(page, bytes) {
                return Ok(Err(ImageError::Load { page, source }));
            }
        }
        let at = layout.slots[unit.0].at(pages.start);
        files[unit.0].write_all_at(buffer, at).map_err(Ended::Full)?;
        self.filling.wrote(unit);
        Ok(Ok(()))
    }
}
