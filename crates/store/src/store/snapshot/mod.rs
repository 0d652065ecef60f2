//! Snapshots: a store's contents at one moment, in their stored form, as one file.
//!
//! A snapshot is of the moment at which it begins, although stores go on while it is written.
//! Every entry carries one bit, the epoch in which it came into its slot; a snapshot begins by
//! turning the store's epoch over, and then goes over the slots.
//!
//! - S1: an entry of the other epoch is one that the snapshot still needs. The sweep writes it and
//!   turns its bit; a thread that replaces it before puts it on the list of *preserved* entries
//!   instead of freeing it, and the sweep writes it from there. Entries of this epoch came later.
//! - S2: epoch and bit are read and changed under the slot's lock. So a thread that finds a bit
//!   that differs from the epoch is the first to come by since the snapshot began, and no entry is
//!   missed or freed too early. A store whose page is in the snapshot comes, for every thread,
//!   before the turn. The sweep locks no empty slot; so a thread that is about to fill one
//!   announces it before it reads the epoch, and the sweep waits for an announced slot.
//! - S3: after the sweep all entries have the epoch's bit and none is preserved, also if the file
//!   could not be written, or writing it panicked: then the sweep ends without writing. An entry
//!   left behind would be missing from the next snapshot, or be in it as a page of its key that is
//!   long gone.
//! - S4: forms that processing swaps keep the bit: they are the same page.
//! - S5: a page that cannot be read is in the snapshot as lost. After a restore, loading it fails
//!   until it is written again: it never reads as anything else.
//!
//! Locking: one snapshot at a time; the list's lock is taken below a slot's.

pub(crate) mod epoch;
mod error;
mod format;
mod restore;
mod save;

pub use error::{LABEL_MAX, SnapshotError, SnapshotReport};
pub use format::Header;
pub use restore::{header, verify};

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
