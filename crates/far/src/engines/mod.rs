//! Real engines: what keeps objects by number on other machines.

#[cfg(feature = "nbd")]
pub(crate) mod nbd;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "nbd", feature = "redis", feature = "s3"))]
pub(crate) mod said;
#[cfg(any(feature = "nbd", feature = "redis"))]
mod tcp;
#[cfg(any(feature = "redis", feature = "s3"))]
pub(crate) mod tls;

use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::place::{Place, PlaceError, place_error};

/// Connects to the place and returns its engine, with a name for its objects that no other
/// engine has.
///
/// # Errors
/// It cannot be reached by the deadline, refuses, or is not fit to keep pages.
pub fn connect(place: &Place, deadline: Instant) -> Result<Arc<dyn Engine>, PlaceError> {
    // Where no engine is built, nothing waits.
    let _ = deadline;
    match place {
        #[cfg(feature = "redis")]
        Place::Redis(place) => Ok(Arc::new(redis::RedisEngine::connect(place, deadline)?)),
        #[cfg(not(feature = "redis"))]
        place @ Place::Redis(_) => Err(place.not_built()),
        #[cfg(feature = "nbd")]
        Place::Nbd(place) => Ok(Arc::new(nbd::NbdEngine::connect(place, deadline)?)),
        #[cfg(not(feature = "nbd"))]
        place @ Place::Nbd(_) => Err(place.not_built()),
        Place::S3(place) => Err(place_error!(
            "{place} keeps snapshots only: give a file, redis://HOST or nbd://HOST/EXPORT"
        )),
    }
}
