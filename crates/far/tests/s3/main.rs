//! Objects of S3 at a real server: complete or not there; servers that pause or are busy; and one
//! that answers more than it is asked for.

mod busy;
mod endless;
mod gate;
mod objects;
mod refused;

use zfold_far::Object;
use zfold_far::place::{Place, PlaceError, Source};
use zfold_testing::s3::{BUCKET, S3};

/// Reads a place as a program does that has these variables.
fn place(text: &str, variables: &[(&str, String)]) -> Result<Place, PlaceError> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    Place::parse(text, Source::Arguments, variable)
}

/// Returns an object in the server's bucket.
fn object(server: &S3, key: &str) -> Box<dyn Object> {
    let place = place(&format!("s3://{BUCKET}/{key}"), &server.variables()).expect("a place");
    zfold_far::object(&place).expect("an object")
}
