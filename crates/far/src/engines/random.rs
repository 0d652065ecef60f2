//! Names that no other process has.

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::hex::hex;
use crate::place::{PlaceError, place_error};

/// Letters of a name.
#[cfg(feature = "s3")]
pub(super) const NAME_LEN: usize = 32;

/// Returns a name of 128 random bits, in hex.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn name() -> Result<String, PlaceError> {
    let mut random = [0; 16];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| place_error!("the system has no random numbers to name objects with"))?;
    Ok(hex(&random))
}
