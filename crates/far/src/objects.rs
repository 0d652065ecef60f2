//! Which object is meant by a place.

use crate::object::Object;
use crate::place::{Place, PlaceError, place_error};

/// Returns the object of that place. Sends no request.
///
/// # Errors
/// The place is none of a single object, or what the environment says of it makes no sense.
pub fn object(place: &Place) -> Result<Box<dyn Object>, PlaceError> {
    match place {
        #[cfg(feature = "s3")]
        Place::S3(place) => Ok(Box::new(crate::s3::S3Object::open(place)?)),
        #[cfg(not(feature = "s3"))]
        place @ Place::S3(_) => Err(place.not_built()),
        place @ (Place::Redis(_) | Place::Nbd(_)) => {
            Err(place_error!("{place} keeps pages only: give a file or s3://BUCKET/KEY"))
        }
    }
}
