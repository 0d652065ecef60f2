//! Real objects: what keeps a stream on other machines.

#[cfg(feature = "s3")]
mod s3;

use crate::object::Object;
use crate::place::{Place, PlaceError, place_error};

/// Takes a text as a list of parts, as it may lie beside an object.
///
/// # Panics
/// If what was read is not what is written then.
#[cfg(all(feature = "s3", any(test, feature = "testing")))]
pub(crate) fn take_list(text: &str) {
    s3::take_list(text);
}

/// Returns the object of that place. Sends no request.
///
/// # Errors
/// The place is none of a single object, or what the environment says of it makes no sense.
pub fn object(place: &Place) -> Result<Box<dyn Object>, PlaceError> {
    match place {
        #[cfg(feature = "s3")]
        Place::S3(place) => Ok(Box::new(s3::S3Object::open(place)?)),
        #[cfg(not(feature = "s3"))]
        place @ Place::S3(_) => Err(place.not_built()),
        place @ (Place::Redis(_) | Place::Nbd(_)) => {
            Err(place_error!("{place} keeps pages only: give a file or s3://BUCKET/KEY"))
        }
    }
}
