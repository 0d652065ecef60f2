//! Why a place cannot be used.

/// Why a place cannot be used: one line that names the remedy, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlaceError(pub(crate) String);

/// Makes an error of what is put after `place_error!`, as `format!` does.
macro_rules! place_error {
    ($($text:tt)*) => { $crate::place::PlaceError(format!($($text)*)) };
}
pub(crate) use place_error;
