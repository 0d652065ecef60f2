//! An export of an NBD server: a block device of another machine, in which objects lie in rows of
//! grains.
//!
//! Where they lie is known here only. So an export serves one process at a time, which gives it
//! away; and the next user begins with an empty one.
//!
//! - D1: a grain is free, belongs to one object, or is lost, and is written to before its object
//!   is known. So a reader that knows an object reads what was put, or, if it was deleted
//!   meanwhile, something that does not open.
//! - D2: what a put had when it got no answer is lost: the server may write there at any later
//!   time. Nothing but writes and reads is sent while objects are there, so nothing else can come
//!   late.
//! - D3: a request that failed because its connection did is repeated until its deadline, elsewhere
//!   in the export if it was a put.
//!
//! What is acknowledged is as durable as the server keeps it without a flush.
//!
//! Locks: the book's is a leaf; no request is made under it.

mod connection;
#[cfg(any(test, feature = "testing"))]
#[path = "../../../tests/heard/nbd.rs"]
pub(crate) mod heard;
mod links;

use std::collections::BTreeMap;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use zfold_store::backing::Extents;
use zfold_store::pool::Lock;

use self::connection::{Connection, Export, Job};
use self::links::Links;
use crate::engine::{Engine, EngineError};
use crate::engines::tcp::left;
use crate::map::UNIT;
use crate::place::{NbdPlace, PlaceError, place_error};
use crate::seal::SEALED;

/// Bytes of a grain.
const GRAIN: u64 = 4096;

/// Length of an object: as many units as fit into 256 KiB of grains.
const OBJECT_BYTES: usize = (256 << 10) / SEALED * SEALED;

/// Least length of an export.
const SIZE_MIN: u64 = 8 << 20;

/// Most bytes of one request to trim.
const TRIM_MAX: u64 = 1 << 30;

/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// Objects in an export.
#[derive(Debug)]
pub(crate) struct NbdEngine {
    name: String,
    export: Export,
    links: Links,
    book: Lock<Book>,
}

#[derive(Debug)]
struct Book {
    grains: Extents,
    /// Grains that are taken for good (D2).
    lost: u32,
    objects: BTreeMap<u64, Stored>,
}

impl Book {
    /// Takes `len` grains, in one row if there is one so long. None if fewer are free.
    fn take(&mut self, len: u32) -> Option<Box<[Row]>> {
        let (mut rows, mut left) = (Vec::new(), len);
        while left > 0 {
            let Some((start, len)) = self.grains.allocate_up_to(left) else {
                self.give(&rows);
                return None;
            };
            rows.push(Row { start, len });
            left -= len;
        }
        Some(rows.into())
    }

    /// Gives grains back.
    fn give(&mut self, rows: &[Row]) {
        rows.iter().for_each(|row| self.grains.free(row.start, row.len));
    }
}

/// Grains side by side.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u32,
    len: u32,
}

impl Row {
    /// Returns where in the export it begins.
    fn offset(self) -> u64 {
        u64::from(self.start) * GRAIN
    }

    /// Returns its bytes.
    fn bytes(self) -> usize {
        self.len as usize * GRAIN as usize
    }
}

/// Where an object lies.
#[derive(Clone, Debug)]
struct Stored {
    len: usize,
    rows: Box<[Row]>,
}

impl NbdEngine {
    /// Connects to the export of `place`, and has the server forget what lies there.
    ///
    /// # Errors
    /// It cannot be reached by the deadline, refuses, or is not fit; one line that names the
    /// remedy.
    pub(crate) fn connect(place: &NbdPlace, deadline: Instant) -> Result<Self, PlaceError> {
        let (link, export) = Connection::open(place, deadline).map_err(|error| match error {
            EngineError::Refused(_) => place_error!("{place} {error}"),
            _ => place_error!("{place} {error}: start it, or name another one"),
        })?;
        let block = u64::from(export.block);
        if export.read_only {
            return Err(place_error!("{place} is read-only: serve it for writing"));
        }
        if export.size < SIZE_MIN {
            return Err(place_error!("{place} has {} bytes: serve 8 MiB or more", export.size));
        }
        if !export.block.is_power_of_two() || block > GRAIN || u64::from(export.payload) < GRAIN {
            let Export { block, payload, .. } = export;
            return Err(place_error!(
                "{place} takes blocks of {block} bytes and requests of {payload}: serve it with \
                 blocks of 4096 bytes at most"
            ));
        }
        let grains = Extents::new(u32::try_from(export.size / GRAIN).unwrap_or(u32::MAX));
        let engine = Self {
            name: format!("nbd at {} {}", place.server, place.export).trim_end().to_owned(),
            links: Links::new(place, link, export),
            export,
            book: Lock::new(Book { grains, lost: 0, objects: BTreeMap::new() }),
        };
        match engine.trim(deadline) {
            // Advisory: what is not trimmed is overwritten.
            Ok(()) | Err(EngineError::Refused(_)) => Ok(engine),
            // One that comes late would take what will be there (D2).
            Err(error) => {
                Err(place_error!("{place} {error} to a trim of all of it: serve it without trim"))
            }
        }
    }

    /// Has the server forget everything.
    fn trim(&self, deadline: Instant) -> Result<(), EngineError> {
        if !self.export.trims {
            return Ok(());
        }
        let end = self.export.size / GRAIN * GRAIN;
        let starts = (0..end).step_by(TRIM_MAX as usize);
        for start in starts {
            let len = (end - start).min(TRIM_MAX) as u32;
            self.links.run(&mut [Job::Trim(start, len)], deadline).map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    /// Writes an object to rows of grains.
    fn write(&self, rows: &[Row], bytes: &[u8], until: Instant) -> Result<(), (EngineError, bool)> {
        let most = self.most();
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(self.export.block as usize), 0);
        let mut rest = &padded[..];
        let mut jobs = Vec::new();
        for row in rows {
            let (now, later) = rest.split_at(rest.len().min(row.bytes()));
            rest = later;
            let starts = (row.offset()..).step_by(most);
            jobs.extend(starts.zip(now.chunks(most)).map(|(at, part)| Job::Write(at, part)));
        }
        self.links.run(&mut jobs, until)
    }

    /// Reads `out` from `offset` of an object on.
    fn read(
        &self,
        object: &Stored,
        offset: usize,
        out: &mut [u8],
        until: Instant,
    ) -> Result<(), EngineError> {
        let block = self.export.block as usize;
        let (first, end) = (offset / block * block, offset + out.len());
        let mut whole = vec![0; end.next_multiple_of(block) - first];
        let most = self.most();
        let mut jobs = Vec::new();
        let (mut rest, mut row_at, mut at) = (&mut whole[..], 0, first);
        for row in &object.rows {
            let row_end = row_at + row.bytes();
            if at < row_end && !rest.is_empty() {
                let len = rest.len().min(row_end - at);
                let (now, later) = mem::take(&mut rest).split_at_mut(len);
                let start = row.offset() + (at - row_at) as u64;
                at += now.len();
                rest = later;
                let starts = (start..).step_by(most);
                jobs.extend(starts.zip(now.chunks_mut(most)).map(|(at, part)| Job::Read(at, part)));
            }
            row_at = row_end;
        }
        self.links.run(&mut jobs, until).map_err(|(error, _)| error)?;
        out.copy_from_slice(&whole[offset - first..][..out.len()]);
        Ok(())
    }

    /// Returns the most bytes of one request.
    fn most(&self) -> usize {
        (u64::from(self.export.payload) / GRAIN * GRAIN) as usize
    }
}

/// Waits before another attempt, if the error is one that passes and there is time.
fn wait(error: EngineError, deadline: Instant) -> Result<(), EngineError> {
    match left(deadline) {
        Some(left) if left > PAUSE && matches!(error, EngineError::Unreachable(_)) => {
            thread::sleep(PAUSE);
            Ok(())
        }
        _ => Err(error),
    }
}

impl Engine for NbdEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn object_bytes(&self) -> usize {
        OBJECT_BYTES
    }

    /// Returns half of what the export has room for: the other half is reserved for garbage.
    fn room(&self) -> Option<u64> {
        Some(self.export.size / 2 / SEALED as u64 * UNIT as u64)
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        let grains = bytes.len().div_ceil(GRAIN as usize) as u32;
        loop {
            let rows = self.book.lock().take(grains);
            let rows = rows.ok_or_else(|| {
                let lost = u64::from(self.book.lock().lost) * GRAIN;
                EngineError::Refused(format!(
                    "the export is full, and {lost} bytes of it are not used again: serve a longer \
                     one, or give a smaller --backing-size"
                ))
            })?;
            match self.write(&rows, bytes, deadline) {
                Ok(()) => {
                    let stored = Stored { len: bytes.len(), rows };
                    self.book.lock().objects.insert(number, stored);
                    return Ok(());
                }
                Err((error, sent)) => {
                    let answered = matches!(error, EngineError::Refused(_));
                    if sent && !answered {
                        self.book.lock().lost += grains;
                    } else {
                        self.book.lock().give(&rows);
                    }
                    wait(error, deadline)?;
                }
            }
        }
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        let object = self.book.lock().objects.get(&number).cloned().ok_or(EngineError::Missing)?;
        if offset + out.len() > object.len {
            return Err(EngineError::Missing);
        }
        if out.is_empty() {
            return Ok(());
        }
        loop {
            match self.read(&object, offset, out, deadline) {
                Ok(()) => return Ok(()),
                Err(error) => wait(error, deadline)?,
            }
        }
    }

    /// Gives the grains back. Sends no request: one that comes late would harm the next owner of
    /// these grains.
    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        left(deadline).ok_or(EngineError::Late)?;
        let mut book = self.book.lock();
        for number in numbers {
            if let Some(object) = book.objects.remove(number) {
                book.give(&object.rows);
            }
        }
        Ok(())
    }

    fn close(&self, deadline: Instant) -> Result<(), EngineError> {
        self.trim(deadline)
    }
}
