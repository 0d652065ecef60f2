//! Saves a machine: the receiver's side of a migration.
//!
//! One thread receives; the atomics are figures that others read meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, fstatfs};
use thiserror::Error;

use super::incoming::{Incoming, Needs, Refused};
use super::layout::Layout;
use super::socket::{Broken, Peer};
use super::wire::{Answer, HEADER, SLOT};
use crate::images::{ImageError, Images, Imported, Machine, Part};

/// How long a VMM may take for its next message: it pauses the machine in between.
const PATIENCE: Duration = Duration::from_secs(60);

/// `f_type` of files in huge pages, as in Linux's `magic.h`.
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why a machine was not saved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Its VMM has gone, or takes too long.
    #[error("cloud-hypervisor did not send the machine: {0}")]
    Broken(#[from] Broken),
    /// Its VMM sent something that makes no machine.
    #[error("cloud-hypervisor sent no machine that can be saved: {0}")]
    Refused(#[from] Refused),
    /// Its VMM gave it up.
    #[error("cloud-hypervisor abandoned the migration: see what it says about that")]
    Abandoned,
    /// A descriptor is no file of memory.
    #[error("the memory of slot {0} is not a file of ordinary pages (huge pages cannot be saved)")]
    Kind(u32),
    /// A file of memory is shorter than its slot.
    #[error("the file of slot {slot} has {has} bytes, the slot ends at {needs}")]
    Short {
        /// The slot.
        slot: u32,
        /// Bytes of the file.
        has: u64,
        /// Bytes that the slot needs.
        needs: u64,
    },
    /// It does not fit, or its name is taken.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// A file cannot be looked at.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The caller does not want the image.
    #[error("{0}")]
    Entry(String),
}

/// A machine that was saved.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Received {
    /// Its memory.
    pub imported: Imported,
    /// Whether its VMM took the answer that it is saved. If not, it has gone, or goes on with the
    /// machine; the image is whole in either case.
    pub was_heard: bool,
}

/// How far a machine has come; may be read while it is received.
#[derive(Debug, Default)]
pub struct Progress {
    pages: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Returns the pages that were dealt with, and all pages; 0 of 0 until memory is read.
    #[must_use]
    pub fn pages(&self) -> (u64, u64) {
        // Relaxed: figures.
        (self.done.load(Ordering::Relaxed), self.pages.load(Ordering::Relaxed))
    }
}

/// Receives a machine from cloud-hypervisor, which has connected by `stream`, and makes an image of
/// it; with a base, of what differs from the base. `enter` is called when the image has its name,
/// and decides whether it stays.
///
/// # Errors
/// [`ReceiveError`]. The VMM was told, as far as it listens, and goes on with the machine; there is
/// no such image, and nothing of it in the store.
pub fn receive(
    stream: UnixStream,
    images: &Images,
    (name, base): (&str, Option<&str>),
    progress: &Progress,
    enter: impl FnOnce(&Imported) -> Result<(), String>,
) -> Result<Received, ReceiveError> {
    let mut session = Session::new(stream);
    let stored = session.receive().and_then(|layout| {
        let imported = session.store(images, (name, base), &layout, progress)?;
        enter(&imported).map_err(|error| {
            // It has just got its name; a user of it keeps it.
            let _ = images.remove(name);
            ReceiveError::Entry(error)
        })?;
        Ok(imported)
    });
    match stored {
        Ok(imported) => {
            let was_heard = session.peer.answer(Answer::DONE).is_ok();
            Ok(Received { imported, was_heard })
        }
        Err(error) => {
            match error {
                ReceiveError::Broken(_) => {}
                // It waits for nothing else.
                ReceiveError::Abandoned => drop(session.peer.answer(Answer::DONE)),
                _ => session.peer.refuse(),
            }
            Err(error)
        }
    }
}

/// A connection, and what has come by it.
struct Session {
    peer: Peer,
    incoming: Incoming,
    files: Vec<(u32, File)>,
    machine: Machine,
}

impl Session {
    fn new(stream: UnixStream) -> Self {
        let (peer, files) = (Peer::new(stream, PATIENCE), Vec::new());
        Self { peer, incoming: Incoming::default(), files, machine: Machine::default() }
    }

    /// Receives everything up to the last request, which is not answered yet.
    fn receive(&mut self) -> Result<Layout, ReceiveError> {
        let mut layout = None;
        loop {
            let mut header = [0; HEADER];
            self.peer.read(&mut header)?;
            match self.incoming.request(&header)? {
                Needs::Nothing => {}
                Needs::Slot => self.slot()?,
                Needs::Config(len) => layout = Some(self.config(len)?),
                Needs::State(len) => self.machine.state = self.document(len)?,
                Needs::Storing => return Ok(layout.expect("the configuration came before")),
                Needs::Abandoned => return Err(ReceiveError::Abandoned),
            }
            self.peer.answer(Answer::DONE)?;
        }
    }

    fn slot(&mut self) -> Result<(), ReceiveError> {
        let mut number = [0; SLOT];
        let fds: Vec<OwnedFd> = self.peer.read(&mut number)?;
        let number = self.incoming.slot(number, fds.len())?;
        let file = File::from(fds.into_iter().next().expect("there is one"));
        let is_file = FileType::from_raw_mode(file.metadata()?.mode()) == FileType::RegularFile;
        if !is_file || fstatfs(&file).map_err(io::Error::from)?.f_type == HUGETLBFS {
            return Err(ReceiveError::Kind(number));
        }
        self.files.push((number, file));
        Ok(())
    }

    fn config(&mut self, len: u64) -> Result<Layout, ReceiveError> {
        self.machine.config = self.document(len)?;
        let layout = self.incoming.config(&self.machine.config)?;
        for slot in &layout.slots {
            let (has, needs) = (self.file(slot.number).metadata()?.len(), slot.file_len());
            if has < needs {
                return Err(ReceiveError::Short { slot: slot.number, has, needs });
            }
        }
        Ok(layout)
    }

    fn document(&self, len: u64) -> Result<Vec<u8>, ReceiveError> {
        // At most `DOCUMENT_MAX` (O4).
        let mut bytes = vec![0; len as usize];
        self.peer.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the file of a slot of the configuration.
    fn file(&self, number: u32) -> &File {
        let found = self.files.iter().find(|(slot, _)| *slot == number);
        &found.expect("each slot of the configuration has a descriptor").1
    }

    fn store(
        &self,
        images: &Images,
        (name, base): (&str, Option<&str>),
        layout: &Layout,
        progress: &Progress,
    ) -> Result<Imported, ReceiveError> {
        progress.pages.store(layout.pages(), Ordering::Relaxed);
        let part = |slot: &super::layout::Slot| Part {
            file: self.file(slot.number),
            from: slot.from,
            pages: slot.pages.end - slot.pages.start,
        };
        let parts: Vec<_> = layout.slots.iter().map(part).collect();
        Ok(images.import_machine(name, &parts, &self.machine, base, &progress.done)?)
    }
}
