//! The recipient of signals to the front.

use std::os::unix::net::UnixStream;

use zfold_pool::Lock;

use super::record::End;

/// The recipient of a signal.
#[derive(Debug)]
pub(super) enum Recipient {
    /// None yet; this one came.
    Nobody(Option<i32>),
    /// The run without a limit; after it this process ends by the signal, if one came.
    Baseline(i32, Option<i32>),
    /// The manager, which passes it on.
    Manager(UnixStream),
    /// The program has ended, only the report is waited for.
    Waiting(End),
}

/// The present recipient; shared with the thread that waits for signals.
pub(super) type Recipients = Lock<Recipient>;
