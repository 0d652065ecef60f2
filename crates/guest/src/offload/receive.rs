//! Saves a machine: the receiver's side of a migration.
//!
//! One thread receives, apart, up to the last request (apart/T1); another one reads the memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{fstat, fstatfs};
use thiserror::Error;

use super::incoming::{Incoming, Needs};
use super::layout::Layout;
use super::socket::{Broken, Peer};
use super::wire::{Answer, HEADER, Refused, SLOT};
use crate::images::{ImageError, Images, Imported, Machine, Part};
use crate::serve::apart::{Apart, Foreign, Visitor, is_in_memory};

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
    #[error(
        "the memory of slot {0} is not a file in memory of ordinary pages (huge pages and files on \
         disks cannot be saved)"
    )]
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
    enter: impl FnOnce(&Imported) -> Result<(), String>,
) -> Result<Received, ReceiveError> {
    let apart = Apart::start(stream, visit)?;
    // If it panicked, it said why.
    let (told, mut fds) = apart.wait().ok_or(Broken::Left)?;
    let Delivery { layout, machine, slots } = told?;
    // Behind the files.
    let stream = fds.pop().ok_or(Broken::Left)?;
    let files = slots.into_iter().zip(fds.into_iter().map(File::from)).collect();
    let session = Session { peer: Peer::new(stream.into(), PATIENCE), files, machine };
    let stored = session.store(images, (name, base), &layout).and_then(|imported| {
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
            // Nothing more can come from it (apart/T3).
            let _ = session.peer.answer(Answer::REFUSED);
            Err(error)
        }
    }
}

/// What has come from a VMM, apart from its files.
struct Delivery {
    layout: Layout,
    machine: Machine,
    /// The slots of the files, in their order.
    slots: Vec<u32>,
}

/// A connection of which everything up to the last request was received, apart: here a descriptor
/// may be any file.
struct Visit<'a> {
    visitor: &'a Visitor,
    peer: Peer,
    incoming: Incoming,
    files: Vec<(u32, Foreign)>,
    machine: Machine,
}

/// Receives everything up to the last request, which is not answered yet, and passes the files on.
fn visit(visitor: &Visitor) -> Result<Delivery, ReceiveError> {
    let peer = Peer::new(visitor.stream().try_clone()?, PATIENCE);
    let (incoming, files, machine) = (Incoming::default(), Vec::new(), Machine::default());
    let mut visit = Visit { visitor, peer, incoming, files, machine };
    match visit.receive() {
        Ok(layout) => {
            let fds: Vec<_> = visit.files.iter().map(|(_, file)| file.as_fd()).collect();
            visitor.pass(&fds);
            let slots = visit.files.iter().map(|(slot, _)| *slot).collect();
            Ok(Delivery { layout, machine: visit.machine, slots })
        }
        Err(error) => {
            match error {
                ReceiveError::Broken(_) => {}
                // It waits for nothing else.
                ReceiveError::Abandoned => drop(visit.peer.answer(Answer::DONE)),
                _ => visit.peer.refuse(),
            }
            Err(error)
        }
    }
}

impl Visit<'_> {
    fn receive(&mut self) -> Result<Layout, ReceiveError> {
        let mut layout = None;
        loop {
            let mut header = [0; HEADER];
            self.read(&mut header)?;
            match self.incoming.request(&header)? {
                Needs::Nothing => {}
                Needs::Slot => self.slot()?,
                Needs::Config(len) => {
                    self.machine.config = self.document(len)?;
                    let found = self.incoming.config(&self.machine.config)?;
                    self.check(&found)?;
                    layout = Some(found);
                }
                Needs::State(len) => self.machine.state = self.document(len)?,
                Needs::Storing => return Ok(layout.expect("the configuration came before")),
                Needs::Abandoned => return Err(ReceiveError::Abandoned),
            }
            self.peer.answer(Answer::DONE)?;
        }
    }

    fn read(&self, into: &mut [u8]) -> Result<Vec<Foreign>, Broken> {
        self.peer.read_by(self.visitor, into)
    }

    fn slot(&mut self) -> Result<(), ReceiveError> {
        let mut number = [0; SLOT];
        let fds = self.read(&mut number)?;
        let number = self.incoming.slot(number, fds.len())?;
        let file = fds.into_iter().next().expect("there is one");
        if !is_in_memory(file.as_fd()) {
            return Err(ReceiveError::Kind(number));
        }
        if fstatfs(file.as_fd()).map_err(io::Error::from)?.f_type == HUGETLBFS {
            return Err(ReceiveError::Kind(number));
        }
        self.files.push((number, file));
        Ok(())
    }

    /// Checks that each file is as long as its slot.
    fn check(&self, layout: &Layout) -> Result<(), ReceiveError> {
        for slot in &layout.slots {
            let file = self.files.iter().find(|(number, _)| *number == slot.number);
            let (_, file) = file.expect("each slot of the configuration has a descriptor");
            let has = fstat(file.as_fd()).map_err(io::Error::from)?.st_size as u64;
            let (slot, needs) = (slot.number, slot.file_len());
            if has < needs {
                return Err(ReceiveError::Short { slot, has, needs });
            }
        }
        Ok(())
    }

    fn document(&self, len: u64) -> Result<Vec<u8>, ReceiveError> {
        // At most `DOCUMENT_MAX` (O4).
        let mut bytes = vec![0; len as usize];
        self.read(&mut bytes)?;
        Ok(bytes)
    }
}

/// A machine that has come, and the connection.
struct Session {
    peer: Peer,
    files: Vec<(u32, File)>,
    machine: Machine,
}

impl Session {
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
    ) -> Result<Imported, ReceiveError> {
        let part = |slot: &super::layout::Slot| Part {
            file: self.file(slot.number),
            from: slot.from,
            pages: slot.pages.end - slot.pages.start,
        };
        let parts: Vec<_> = layout.slots.iter().map(part).collect();
        Ok(images.import_machine(name, &parts, &self.machine, base)?)
    }
}
