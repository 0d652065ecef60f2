//! Why a guest cannot go to sleep.

use thiserror::Error;

/// Why the base of a guest's Diff snapshot cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoOrigin {
    /// No guest has that number.
    #[error(
        "no guest {0} is served: zfold guest stat lists the numbers of guests; a VMM must run \
            until its guest sleeps"
    )]
    Missing(u64),
    /// It is held.
    #[error("guest {0} is held, not served: no image has a page of it")]
    Held(u64),
    /// Its thread does not finish its work for it.
    #[error("guest {0} is running: pause it, and take its snapshot")]
    Busy(u64),
}
