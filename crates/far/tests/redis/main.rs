//! The engine for Redis against real servers: the contract, and servers that stop, end, forget,
//! refuse and are full.

mod alone;
mod busy;
mod refused;

use std::sync::Arc;

use zfold_far::place::{Place, PlaceError, Source};
use zfold_far::{Engine, EngineError};
use zfold_testing::wait::soon;

const LEN: usize = 20_000;

/// Returns the bytes of an object, different for each.
fn object(number: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| ((at + 3) * (number * 2 + 1) % 253) as u8).collect()
}

fn put(engine: &dyn Engine, numbers: std::ops::Range<u64>) {
    for number in numbers {
        engine.put(number, &object(number), soon()).unwrap_or_else(|why| panic!("{number}: {why}"));
    }
}

/// Reads a range of each object; returns how many are missing. Anything else fails.
fn missing(engine: &dyn Engine, numbers: std::ops::Range<u64>) -> usize {
    let mut missing = 0;
    for number in numbers {
        let mut out = vec![0; 4000];
        match engine.get(number, 1000, &mut out, soon()) {
            Ok(()) => assert!(out == object(number)[1000..5000], "wrong bytes of {number}"),
            Err(EngineError::Missing) => missing += 1,
            Err(why) => panic!("{number}: {why}"),
        }
    }
    missing
}

/// Connects, as a program with these variables does.
fn connect_with(place: &str, variables: &[(&str, &str)]) -> Result<Arc<dyn Engine>, PlaceError> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    zfold_far::connect(&Place::parse(place, Source::Arguments, variable)?, soon())
}

fn connect(place: &str) -> Arc<dyn Engine> {
    connect_with(place, &[]).expect("an engine")
}
