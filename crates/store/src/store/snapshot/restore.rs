//! Reading a snapshot, and filling a store from it.

use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;

use super::error::{SnapshotError, SnapshotReport};
use super::format::{Header, Reader, Record};
use crate::codec::Codec;
use crate::entry::{Entry, Kind, State};
use crate::error::StoreError;
use crate::files::open_believed;
use crate::pages::contexts::reader_of;
use crate::store::Store;

/// Bytes read at once.
const BUFFER: usize = 1 << 20;

impl Store {
    /// Fills the empty store from a snapshot. Pages keep their compressed form if the store has the
    /// codec that wrote them, and are recompressed otherwise; so are whole pages, which may have
    /// lain on a backing file as they are and compress.
    ///
    /// # Errors
    /// [`SnapshotError`]; the store is empty then.
    pub fn restore(&self, input: &mut dyn Read) -> Result<SnapshotReport, SnapshotError> {
        if !self.is_empty() {
            return Err(SnapshotError::NotEmpty);
        }
        let restored = self.restore_records(input);
        if restored.is_err() {
            self.invalidate_range(0..self.slots());
            self.compact();
        }
        restored
    }

    /// Restores from a file as [`restore`](Self::restore) does, after the whole file was checked.
    ///
    /// # Errors
    /// [`SnapshotError`], also for a file that another user may have put there; the store is empty
    /// then.
    pub fn restore_from(&self, path: &Path) -> Result<SnapshotReport, SnapshotError> {
        let mut file = open_believed(path)?;
        // Before all of a pipe was read in vain.
        file.rewind().map_err(|_| {
            io::Error::other("it is a pipe and is read twice: give the name of a file")
        })?;
        verify(&mut BufReader::with_capacity(BUFFER, &file))?;
        file.rewind()?;
        self.restore(&mut BufReader::with_capacity(BUFFER, &file))
    }

    fn restore_records(&self, input: &mut dyn Read) -> Result<SnapshotReport, SnapshotError> {
        let (mut reader, header) = Reader::begin(input)?;
        let (snapshot, store) = (header.page_len, self.pages.len);
        if snapshot != store {
            return Err(SnapshotError::PageLength { snapshot, store });
        }
        let mut restore = Restore::new(self, &header);
        while let Some(record) = reader.next()? {
            restore.page(&record)?;
        }
        Ok(reader.report())
    }
}

/// Reads the beginning of a snapshot; returns what it says about itself.
///
/// # Errors
/// [`SnapshotError`] if it is none.
pub fn header(input: &mut dyn Read) -> Result<Header, SnapshotError> {
    Ok(Reader::begin(input)?.1)
}

/// Reads a whole snapshot and checks every sum; returns how much it holds.
///
/// # Errors
/// [`SnapshotError`] if it is none, or damaged.
pub fn verify(input: &mut dyn Read) -> Result<SnapshotReport, SnapshotError> {
    let (mut reader, _) = Reader::begin(input)?;
    while reader.next()?.is_some() {}
    Ok(reader.report())
}

/// Puts records into a store.
struct Restore<'a> {
    store: &'a Store,
    /// For each codec of the snapshot, the priority of the store's codec that reads it, or a
    /// context that does.
    readers: Vec<Result<u8, Box<dyn Codec>>>,
    page: Vec<u8>,
}

impl<'a> Restore<'a> {
    fn new(store: &'a Store, header: &Header) -> Self {
        let choices = store.pages.contexts.choices();
        let readers = header.codecs.iter().map(|codec| {
            let priority = reader_of(choices, codec.spec.kind(), codec.dictionary.as_ref());
            priority.ok_or_else(|| {
                let context = codec.spec.context_with(store.pages.len, codec.dictionary.as_ref());
                context.expect("checked when the header was read")
            })
        });
        Self { store, readers: readers.collect(), page: vec![0; store.pages.len] }
    }

    fn page(&mut self, record: &Record<'_>) -> Result<(), SnapshotError> {
        let (key, slots) = (record.key, self.store.slots());
        if key >= slots {
            return Err(SnapshotError::Slots { key, slots });
        }
        let damaged = || SnapshotError::Damaged("a page's length");
        let state = match record.kind {
            Kind::Same => {
                let word = record.kept.try_into().map_err(|_| damaged())?;
                let entry = Entry::same(u64::from_le_bytes(word));
                self.store.put(key, entry);
                return Ok(());
            }
            Kind::Raw if record.kept.len() == self.page.len() => {
                // Another codec, or one of another level, may compress it all the same.
                match self.store.store(key, record.kept) {
                    Err(StoreError::Incompressible) => State::new(Kind::Raw, record.kept.len(), 0),
                    stored => {
                        stored?;
                        return Ok(());
                    }
                }
            }
            Kind::Compressed if record.is_lost() => {
                State::new(Kind::Compressed, record.kept.len(), 0)
            }
            // A store that keeps no page as it is takes all that fits into one.
            Kind::Compressed if record.kept.len() <= self.page.len() => {
                match &mut self.readers[usize::from(record.priority)] {
                    Ok(priority) => State::new(Kind::Compressed, record.kept.len(), *priority),
                    Err(codec) => {
                        codec.decompress(record.kept, &mut self.page).map_err(|_| damaged())?;
                        self.store.store(key, &self.page)?;
                        return Ok(());
                    }
                }
            }
            _ => return Err(damaged()),
        };
        Ok(self.store.put_kept(key, state, record.kept)?)
    }
}
