//! `zfold attach`: processes that run already, under a limit.
//!
//! ```text
//!   shell -- zfold attach (front) --socket pair-- zfold manage-attached --traces-- processes
//!               |  which processes  ->               |  holds what of their memory lies
//!               |  <- the limit is kept, remarks     |  compressed
//!            status                                  +- ends when the last of them has
//! ```
//!
//! - A1: the front looks at all processes and asks, before the manager does anything. A process
//!   that is another than the one that was looked at is refused.
//! - A2: the manager has a session of its own and is ended by no signal but SIGKILL: neither the
//!   end of the front or of its terminal nor a signal to their group ends it, for the processes
//!   would end with it.
//! - A3: it holds none of the files that the front was started with.

mod asked;
mod front;
mod manager;

pub(crate) use front::attach;
pub(crate) use manager::manage;
