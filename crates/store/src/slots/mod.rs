//! The slot table: one dense array of slots, each with its own lock.
//!
//! ```text
//!   wide group:    | word, value | word, value | ... |                  256 slots of 16 bytes
//!   narrow group:  | word | word | ... | stamp | stamp | ... |          341 slots of 12 bytes
//!   beside it:     | value | value | ... |             only if the word of a slot has no room
//! ```
//!
//! The meaning of a slot's words is defined by [`Entry`](crate::entry::Entry). The word of a *wide*
//! slot is the entry's state. That of a *narrow* one has the value in the place of the stamp, in
//! short ([`code`]): stores whose slots own their objects have narrow slots, and hardly any value
//! that does not fit. One bit of the word is the lock.
//!
//! The table is reserved for all slots and costs memory only where slots are in use: a *group*,
//! the slots of one 4 KiB page, is given back to the system when its last slot is emptied, with
//! the page of values beside it.
//!
//! - T1: word, value and stamp are read and written only by the thread that set the lock bit, but
//!   a word may be read by anyone as a hint, and zero is true: the slot was empty and unlocked.
//! - T2: an all-zero slot is an empty, unlocked one; so a group that was given back, which reads
//!   as zeros, is a group of empty slots.
//! - T3: `live` of a group counts its slots that are not empty, and those that are locked and
//!   announced to be filled; it changes under the lock of the slot concerned. A group is given
//!   back only by a thread that holds the locks of all its slots and finds them empty. Threads
//!   that wait for one of these locks meanwhile read either the locked word or, once the page is
//!   gone, zero; both are right. The values beside it go before, while the locks still hold.
//! - T4: one emptied group is left alone until another one is emptied, so that a slot that
//!   comes and goes does not call the system every time.
//! - T5: the pool's mover locks a slot by trying, under the pool's lock, and only if its entry
//!   names the very object that is to move; it changes the entry's address, nothing else, and
//!   unlocks. It has up to eight slots locked, while it copies, and waits for nothing meanwhile. A
//!   marked slot is left alone: its page is about to leave, and the thread that marked it must find
//!   it unchanged.
//!
//! A lock is held for a few microseconds at most (a decompression), by threads that do not
//! block; waiters spin briefly and then yield.

mod code;
mod form;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
#[path = "memory_loom.rs"]
mod memory;
mod owners;
mod slot;
mod table;

pub(crate) use form::Form;
pub(crate) use table::{SlotGuard, SlotTable};

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod move_models;
#[cfg(all(test, not(loom)))]
mod tests;
