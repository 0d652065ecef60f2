//! The engine and the objects of S3 against a real server: the contract, servers that stop, end and
//! forget, and writes that are interrupted; and against one that answers more than it is asked for.

mod busy;
mod endless;
mod gate;
mod objects;
mod pages;
mod refused;

use std::sync::Arc;

use zfold_far::place::{Place, PlaceError, Source};
use zfold_far::{Engine, Object};

use zfold_testing::s3::{BUCKET, S3};
use zfold_testing::wait::soon;

/// Reads a place as a program does that has these variables.
fn place(text: &str, variables: &[(&str, String)]) -> Result<Place, PlaceError> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    Place::parse(text, Source::Arguments, variable)
}

/// Returns the engine of a path in the server's bucket.
fn engine(server: &S3, path: &str) -> Arc<dyn Engine> {
    let place = place(&format!("s3://{BUCKET}/{path}"), &server.variables()).expect("a place");
    zfold_far::connect(&place, soon()).expect("an engine")
}

/// Returns an object in the server's bucket.
fn object(server: &S3, key: &str) -> Box<dyn Object> {
    let place = place(&format!("s3://{BUCKET}/{key}"), &server.variables()).expect("a place");
    zfold_far::object(&place).expect("an object")
}
