//! Work on pages that lie still: marking them idle, writing them back, recompressing them.
//!
//! It goes in three steps, of which only the first and the last hold a slot's lock, one at a time:
//! *choose* a page, copy its bytes and mark its slot; *work* on the copy; *swap* the new form in if
//! the slot still bears the mark. Any use of the page in between, a load too, takes the mark away:
//! a page that is in use is left alone, and no use waits for the work.
//!
//! - P1: one thread at a time processes; marks are only set under [`Processing`]'s lock, and a slot
//!   is not marked again before the work on what was chosen there is over. So a mark seen at the
//!   swap is the one set at the choice, and the slot holds what was copied; another page may lie
//!   where that one lay, but bears no mark.
//! - P2: work that fails leaves pages as they were, without marks.
//! - P3: the copy is of the page at the choice, and the swap changes its form only: no reader or
//!   writer can tell when it happened.
//!
//! Locking: the processing lock is the outermost; threads that hold a slot's lock never wait for
//! it (K6).

mod choose;
#[cfg(all(test, loom))]
mod models;
mod recompress;
mod room;
pub(crate) mod rounds;
mod selection;
mod writeback;

pub use recompress::Recompress;
pub use rounds::Processed;
pub use selection::Selection;
