//! Who gets the signals that the front gets.

use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::End;

/// Who gets a signal.
#[derive(Debug)]
pub(super) enum Recipient {
    /// Nobody yet; this one came.
    Nobody(Option<i32>),
    /// The run without a limit; after it this process ends by the signal, if one came.
    Baseline(i32, Option<i32>),
    /// The manager, which passes it on.
    Manager(UnixStream),
    /// The program has ended, only the report is waited for.
    Waiting(End),
}

/// Who gets a signal now; shared with the thread that waits for signals.
pub(super) type Recipients = Mutex<Recipient>;

/// Locks the recipients.
pub(super) fn held(recipients: &Recipients) -> MutexGuard<'_, Recipient> {
    // What a panic leaves is as true as before.
    recipients.lock().unwrap_or_else(PoisonError::into_inner)
}
