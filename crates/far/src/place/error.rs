//! Why a place cannot be used.

use std::fmt;

/// Why a place cannot be used: one line that names the remedy, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceError(pub(crate) String);

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlaceError {}

/// Makes an error of what is put after `place_error!`, as `format!` does.
macro_rules! place_error {
    ($($text:tt)*) => { $crate::place::PlaceError(format!($($text)*)) };
}
pub(crate) use place_error;
