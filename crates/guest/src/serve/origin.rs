//! Why a guest cannot go to sleep.

use std::fmt;

/// Why it cannot be said what a difference of a guest is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoOrigin {
    /// No guest has that number.
    Missing(u64),
    /// It is held.
    Held(u64),
    /// Its thread does not come to an end with what it does for it.
    Busy(u64),
}

impl fmt::Display for NoOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(number) => write!(
                f,
                "no guest {number} is served: zfold guest stat has the numbers of guests, and a \
                 VMM has to run until its guest sleeps"
            ),
            Self::Held(number) => {
                write!(f, "guest {number} is held, not served: no image has a page of it")
            }
            Self::Busy(number) => {
                write!(f, "guest {number} does not stand still: pause it, and take its snapshot")
            }
        }
    }
}

impl std::error::Error for NoOrigin {}
