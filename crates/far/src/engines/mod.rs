//! Real engines: what keeps objects by number on other machines.

#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::place::{Place, PlaceError};

/// Connects to the place and returns its engine, with a name for its objects that no other
/// engine has.
///
/// # Errors
/// It cannot be reached by the deadline, refuses, or is not fit to keep pages.
#[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "nobody is asked"))]
pub fn connect(place: &Place, deadline: Instant) -> Result<Arc<dyn Engine>, PlaceError> {
    match place {
        #[cfg(feature = "redis")]
        Place::Redis(place) => Ok(Arc::new(redis::RedisEngine::connect(place, deadline)?)),
        #[cfg(not(feature = "redis"))]
        Place::Redis(_) => Err(crate::place::place_error!(
            "{place}: this zfold was built without it; build with the feature redis"
        )),
    }
}
