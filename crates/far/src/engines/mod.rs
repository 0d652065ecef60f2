//! Real engines: what keeps objects by number on other machines.

pub(crate) mod nbd;
#[cfg(any(feature = "redis", feature = "s3"))]
mod random;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "s3")]
pub(crate) mod s3;
mod said;
mod tcp;
#[cfg(any(feature = "redis", feature = "s3"))]
mod tls;

use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::place::{Place, PlaceError};

/// Connects to the place and returns its engine, with a name for its objects that no other
/// engine has.
///
/// # Errors
/// It cannot be reached by the deadline, refuses, or is not fit to keep pages.
pub fn connect(place: &Place, deadline: Instant) -> Result<Arc<dyn Engine>, PlaceError> {
    match place {
        #[cfg(feature = "redis")]
        Place::Redis(place) => Ok(Arc::new(redis::RedisEngine::connect(place, deadline)?)),
        #[cfg(feature = "s3")]
        Place::S3(place) => Ok(Arc::new(s3::S3Engine::connect(place, deadline)?)),
        Place::Nbd(place) => Ok(Arc::new(nbd::NbdEngine::connect(place, deadline)?)),
        #[cfg(not(all(feature = "redis", feature = "s3")))]
        place => Err(place.not_built()),
    }
}
