//! Snapshots: what a store holds at one moment, compressed as it lies, as one file.
//!
//! A snapshot is of the moment at which it begins, although stores go on while it is written.
//! Every entry carries one bit, the epoch in which it came into its slot; a snapshot begins by
//! turning the store's epoch over, and then goes over the slots.
//!
//! - S1: an entry of the other epoch is one that the snapshot still needs. The sweep writes it and
//!   turns its bit; a thread that replaces it before puts it on the list of *preserved* entries
//!   instead of freeing it, and the sweep writes it from there. Entries of this epoch came later.
//! - S2: epoch and bit are read and changed under the slot's lock. So who finds a bit that differs
//!   from the epoch is first to come by since the snapshot began, and no entry is missed or freed
//!   too early. A store whose page is in the snapshot comes, for every thread, before the turn.
//!   The sweep locks no empty slot; so who is about to fill one announces it before the look at
//!   the epoch, and the sweep waits for a slot that is announced.
//! - S3: after the sweep all entries have the epoch's bit and none is preserved, also if the file
//!   could not be written, or writing it panicked: then the sweep ends without writing. An entry
//!   left behind would be missing from the next snapshot, or be in it as a page of its key that is
//!   long gone.
//! - S4: forms that processing swaps keep the bit: they are the same page.
//! - S5: a page that cannot be read is in the snapshot as lost. Restored, it fails to load until it
//!   is written anew: it never reads as anything else.
//!
//! Locking: one snapshot at a time; the list's lock is taken below a slot's.

mod format;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use crate::codec::Codec;
use crate::pages::contexts::reader_of;
use crate::entry::{Entry, Flag, Kind, State};
use crate::error::{LoadError, StoreError};
use crate::store::{Store, is_same_form};
use crate::sync::atomic::{AtomicBool, Ordering, fence};
pub use format::{Header, LABEL_MAX};
use format::{Reader, Record, Writer};

/// Bytes read and written at once.
const BUFFER: usize = 1 << 20;

/// Slots swept between two looks at the list of preserved entries.
const SWEEP: usize = 256;

/// What a snapshot in progress, or the next one, needs.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    /// One snapshot at a time.
    turn: Mutex<()>,
    epoch: AtomicBool,
    preserved: Mutex<Vec<(u64, Entry)>>,
    /// How many there are.
    preserved_count: AtomicU64,
}

impl Saving {
    /// Returns the epoch's bit; the caller has locked a slot (S2).
    #[inline]
    pub(crate) fn epoch(&self) -> bool {
        // Acquire pairs with the turn: who sees the new epoch comes after what led to it.
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeps an entry that leaves its slot, whose lock the caller holds, for the snapshot (S1).
    #[cold]
    pub(crate) fn preserve(&self, key: u64, entry: Entry) {
        self.preserved.lock().unwrap_or_else(PoisonError::into_inner).push((key, entry));
        // Relaxed: a gauge.
        self.preserved_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bytes of the list of preserved entries; what they refer to counts where it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.preserved_count.load(Ordering::Relaxed) * size_of::<(u64, Entry)>() as u64
    }

    /// Turns the epoch over; returns the new one's bit.
    fn turn_over(&self) -> bool {
        // Release pairs with `epoch`.
        let epoch = !self.epoch.fetch_xor(true, Ordering::AcqRel);
        // Pairs with `SlotGuard::announce`: the sweep looks at the slots only now.
        fence(Ordering::SeqCst);
        epoch
    }

    /// Takes a preserved entry from the list, which gives its memory back with the last.
    fn next_preserved(&self) -> Option<(u64, Entry)> {
        let mut preserved = self.preserved.lock().unwrap_or_else(PoisonError::into_inner);
        let next = preserved.pop();
        self.preserved_count.fetch_sub(next.is_some().into(), Ordering::Relaxed);
        if preserved.is_empty() {
            *preserved = Vec::new();
        }
        next
    }
}

/// What was saved or restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// Pages, same-filled ones included.
    pub pages: u64,
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// Of the pages, those that could not be read when it was saved: only their keys are in it.
    pub lost_pages: u64,
}

/// Why a snapshot was not written or not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Reading or writing failed.
    Io(io::Error),
    /// It is no snapshot of zfold.
    Foreign,
    /// It has a version that this program does not know.
    Version(u32),
    /// It was damaged or cut off; the text says where.
    Damaged(&'static str),
    /// Its pages are of another length than the store's.
    PageLength {
        /// Of the snapshot, in bytes.
        snapshot: usize,
        /// Of the store, in bytes.
        store: usize,
    },
    /// It has a page that the store has no slot for.
    Slots {
        /// The page's key.
        key: u64,
        /// Number of slots of the store.
        slots: u64,
    },
    /// The store holds pages already.
    NotEmpty,
    /// The label is longer than [`LABEL_MAX`].
    Label(usize),
    /// The pool is dead, so no page can be read.
    Load(LoadError),
    /// Some pages could not be read. All others were saved beside.
    Lost {
        /// How many.
        pages: u64,
        /// Where the others are; the lost ones fail to load once they are restored from there.
        saved: PathBuf,
    },
    /// A page could not be restored.
    Store(StoreError),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Foreign => write!(f, "it is no zfold snapshot"),
            Self::Version(version) => {
                write!(f, "it has format version {version}, this program reads version 1")
            }
            Self::Damaged(place) => write!(f, "it is damaged or cut off ({place})"),
            Self::PageLength { snapshot, store } => {
                write!(f, "its pages have {snapshot} bytes, those of the store {store}")
            }
            Self::Slots { key, slots } => {
                write!(f, "it has page {key}, but the store only {slots} slots (make it larger)")
            }
            Self::NotEmpty => write!(f, "the store holds pages already; restore into an empty one"),
            Self::Label(len) => write!(f, "a label of {len} bytes is above {LABEL_MAX}"),
            Self::Load(error) => error.fmt(f),
            Self::Lost { pages, saved } => write!(
                f,
                "{pages} pages cannot be read; the file is as it was, all others are in {}",
                saved.display()
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Store {
    /// Writes what the store holds at this moment to `out`. Other calls go on meanwhile; what they
    /// replace stays in memory until it is written. `label` is the owner's, and comes back with
    /// [`Header`]. Of pages that cannot be read, because they or the backing file are damaged, the
    /// report says how many there are; restored, they fail to load.
    ///
    /// # Errors
    /// [`SnapshotError`]; what was written is not a whole snapshot then, and the store is as
    /// before.
    ///
    /// # Cost
    /// A copy of all that is held; no codec.
    pub fn save(&self, label: &[u8], out: &mut dyn Write) -> Result<SnapshotReport, SnapshotError> {
        if label.len() > LABEL_MAX {
            return Err(SnapshotError::Label(label.len()));
        }
        let _turn = self.saving.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.saving.turn_over();
        let header = Header {
            page_len: self.page_len,
            label: label.to_vec(),
            codecs: self.contexts.choices().to_vec(),
        };
        // What is left of it if a write panics.
        let broken = || Err(SnapshotError::Io(io::ErrorKind::BrokenPipe.into()));
        let mut sweep = Sweep { store: self, epoch, written: broken(), kept: Vec::new() };
        let swept = catch_unwind(AssertUnwindSafe(|| {
            // Moved, because the writer outlives the closure.
            let out = out;
            // S3: also a snapshot that fails with its first byte is swept to its end.
            sweep.written = Writer::begin(out, &header);
            sweep.run();
        }));
        if let Err(panic) = swept {
            sweep.written = broken();
            sweep.run();
            resume_unwind(panic);
        }
        sweep.written?.finish()
    }

    /// Saves to a file as [`save`](Self::save) does: the file at `path` is replaced as a whole
    /// once the new one is complete and on stable storage, else left alone.
    ///
    /// # Errors
    /// [`SnapshotError`]; [`Lost`](SnapshotError::Lost) if some pages cannot be read: then the
    /// others are in a file beside, whose name ends with `.incomplete`.
    pub fn save_to(&self, label: &[u8], path: &Path) -> Result<SnapshotReport, SnapshotError> {
        let incomplete = beside(&replaceable(path)?, ".incomplete");
        let target = |path: &Path, report: &SnapshotReport| match report.lost_pages {
            0 => path.to_owned(),
            _ => incomplete.clone(),
        };
        let report = replace(path, |out| self.save(label, out), target)?;
        match report.lost_pages {
            0 => Ok(report),
            pages => Err(SnapshotError::Lost { pages, saved: incomplete }),
        }
    }

    /// Fills the empty store from a snapshot. Pages keep their compressed form where the store has
    /// the codec that wrote them, and are stored anew where it has not; so are whole pages, which
    /// may have lain on a backing file as they are and compress.
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
    /// [`SnapshotError`]; the store is empty then.
    pub fn restore_from(&self, path: &Path) -> Result<SnapshotReport, SnapshotError> {
        let open = || Ok::<_, io::Error>(BufReader::with_capacity(BUFFER, File::open(path)?));
        verify(&mut open()?)?;
        self.restore(&mut open()?)
    }

    fn restore_records(&self, input: &mut dyn Read) -> Result<SnapshotReport, SnapshotError> {
        let (mut reader, header) = Reader::begin(input)?;
        let (snapshot, store) = (header.page_len, self.page_len);
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

/// Returns what a snapshot says about itself.
///
/// # Errors
/// [`SnapshotError`] if it is none.
pub fn header(path: &Path) -> Result<Header, SnapshotError> {
    Ok(Reader::begin(&mut BufReader::new(File::open(path)?))?.1)
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

/// Lets `write` write a file of what memory held, which only its owner may read. The file at `path`
/// is replaced as a whole once the new one is complete and on stable storage; a link stays a link,
/// and what it leads to is replaced.
///
/// # Errors
/// What [`replaceable`], `write` or the system says; the file at `path` is then as it was.
pub fn replace_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    replace(path, write, |path, _| path.to_owned())
}

/// As [`replace_file`]; `target` says, once it is written, which file of that folder is replaced.
fn replace<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    target: impl FnOnce(&Path, &T) -> PathBuf,
) -> Result<T, E> {
    let path = &replaceable(path)?;
    let part = beside(path, &format!(".part{}", std::process::id()));
    let written = (|| {
        // What is left of a process of this number, or was put there: it is not written to.
        let _ = fs::remove_file(&part);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let result = write(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&part, replaceable(&target(path, &result))?)?;
        // The name, too, must survive.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(result)
    })();
    if written.is_err() {
        // It may not be there; the error that counts is the first one.
        let _ = fs::remove_file(&part);
    }
    written
}

/// Returns the path of what would be replaced at `path`, links followed; nothing need be there.
///
/// # Errors
/// There is something that is not a regular file, such as a device or a pipe, or a link to nothing.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let path = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        _ => fs::canonicalize(path)?,
    };
    if fs::metadata(&path)?.is_file() {
        return Ok(path);
    }
    Err(io::Error::other("it is not a regular file"))
}

/// Returns the name of a file with something added.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

/// A sweep over the slots.
struct Sweep<'a> {
    store: &'a Store,
    epoch: bool,
    /// The snapshot so far, or why there will be none (S3).
    written: Result<Writer<'a>, SnapshotError>,
    /// Bytes of the page at hand.
    kept: Vec<u8>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let slots = &self.store.slots;
        let (mut next, mut swept) = (0, 0);
        while let Some(key) = slots.next_in_use(next, slots.len()) {
            self.slot(key);
            next = key + 1;
            swept += 1;
            if swept % SWEEP == 0 {
                self.preserved();
            }
        }
        self.preserved();
    }

    /// Writes what a slot holds, if the snapshot needs it.
    fn slot(&mut self, key: u64) {
        loop {
            let mut slot = self.store.slots.lock(key);
            let entry = slot.entry();
            if entry.state.is_empty() || entry.state.has(Flag::Epoch) == self.epoch {
                return;
            }
            if !entry.state.has(Flag::Backed) || self.written.is_err() {
                let kept = self.keep(key, entry);
                slot.set_state(entry.state.set(Flag::Epoch, self.epoch));
                drop(slot);
                return self.write(key, entry.state, kept);
            }
            drop(slot);
            let kept = self.keep(key, entry);
            let mut slot = self.store.slots.lock(key);
            let now = slot.entry();
            if is_same_form(now, entry) {
                slot.set_state(now.state.set(Flag::Epoch, self.epoch));
                drop(slot);
                return self.write(key, entry.state, kept);
            }
            // It was replaced, and so preserved, or brought into another form.
        }
    }

    /// Writes and frees the entries that were replaced.
    fn preserved(&mut self) {
        while let Some((key, entry)) = self.store.saving.next_preserved() {
            let kept = self.keep(key, entry);
            // Before the write, which may panic.
            self.store.release(entry);
            self.write(key, entry.state, kept);
        }
    }

    /// Copies what is kept of a page; nobody frees it meanwhile, or the checksum tells.
    fn keep(&mut self, key: u64, entry: Entry) -> Result<(), LoadError> {
        self.kept.clear();
        if self.written.is_err() {
            return Ok(());
        }
        if entry.state.kind() == Kind::Same {
            self.kept.extend_from_slice(&entry.value.to_le_bytes());
        } else if entry.state.has(Flag::Backed) {
            let backed =
                self.store.backed.as_ref().expect("entries on it come from a backing file");
            let keep = |bytes: &[u8]| self.kept.extend_from_slice(bytes);
            let read = backed.read(key, entry.place(), entry.state.len(), keep);
            read.map_err(|error| error.of_page(key))?;
        } else {
            let object = self.store.object(key, entry)?;
            self.kept.extend_from_slice(self.store.payload(&object, key)?);
        }
        Ok(())
    }

    fn write(&mut self, key: u64, state: State, kept: Result<(), LoadError>) {
        let Ok(writer) = &mut self.written else { return };
        let (kind, priority) = (state.kind(), state.priority());
        let written = match kept {
            Ok(()) => writer.page(&Record { key, kind, priority, kept: &self.kept }),
            Err(LoadError::Dead) => Err(SnapshotError::Load(LoadError::Dead)),
            Err(_) => writer.page(&Record::lost(key)),
        };
        if let Err(error) = written {
            self.written = Err(error);
        }
    }
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
        let choices = store.contexts.choices();
        let readers = header.codecs.iter().map(|codec| {
            let priority = reader_of(choices, codec.spec.kind(), codec.dictionary.as_ref());
            priority.ok_or_else(|| {
                let context = codec.spec.context_with(store.page_len, codec.dictionary.as_ref());
                context.expect("checked when the header was read")
            })
        });
        Self { store, readers: readers.collect(), page: vec![0; store.page_len] }
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
                // A page that lay on a backing file as it is may compress all the same.
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

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
