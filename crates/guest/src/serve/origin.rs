//! Why a guest cannot go to sleep.

use thiserror::Error;

/// Why it cannot be said what a difference of a guest is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoOrigin {
    /// No guest has that number.
    #[error(
        "no guest {0} is served: zfold guest stat has the numbers of guests, and a VMM has to run \
         until its guest sleeps"
    )]
    Missing(u64),
    /// It is held.
    #[error("guest {0} is held, not served: no image has a page of it")]
    Held(u64),
    /// Pages have left it that are not the image's.
    #[error(
        "pages of guest {0} have left it under --resident-limit, and its difference may lack them: \
         take a snapshot of type Full, and import that"
    )]
    Left(u64),
    /// Its thread does not come to an end with what it does for it.
    #[error("guest {0} does not stand still: pause it, and take its snapshot")]
    Busy(u64),
}
