//! The slot table: one dense array of slots, each with its own lock.
//!
//! ```text
//!   slot (16 bytes):  | value | state |
//! ```
//!
//! What the two words say is an [`Entry`](crate::entry::Entry)'s matter; one bit of the state is
//! the lock.
//!
//! The table is reserved for all slots and costs memory only where slots are in use: a *group*,
//! the slots of one 4 KiB page, is given back to the system when its last slot is emptied.
//!
//! - T1: `value` and the state are read and written only by the thread that set the lock bit, but
//!   an empty, unlocked state may be read by anyone: it says that the slot was empty.
//! - T2: an all-zero slot is an empty, unlocked one; so a group that was given back, which reads
//!   as zeros, is a group of empty slots.
//! - T3: `live` of a group counts its slots that are not empty, and those that are locked and
//!   announced to be filled; it changes under the lock of the slot concerned. A group is given
//!   back only by a thread that holds the locks of all its slots and finds them empty. Threads
//!   that wait for one of these locks meanwhile read either the locked state or, once the page is
//!   gone, zero; both are right.
//! - T4: one emptied group is left alone until another one is emptied, so that a slot that
//!   comes and goes does not call the system every time.
//! - T5: the pool's mover locks a slot by trying, under the pool's lock, and only if its entry
//!   names the very object that is to move; it changes the entry's address, nothing else, and
//!   unlocks. It has up to eight slots locked, while it copies, and waits for nothing meanwhile. A
//!   marked slot is left alone: its page is about to leave, and who has marked it must find it as
//!   it was.
//!
//! A lock is held for a few microseconds at most (a decompression), by threads that do not
//! block; waiters spin briefly and then yield.

#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "memory_loom.rs"]
mod memory;
mod owners;
mod slot;
mod table;

pub(crate) use table::{SlotGuard, SlotTable};

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod move_models;
#[cfg(all(test, not(loom)))]
mod tests;
