//! What every engine must do (engine/N1 to N4), as checks that panic.

use std::thread;
use std::time::{Duration, Instant};

use crate::engine::{Engine, EngineError};

/// Numbers that no other test uses.
const FIRST: u64 = 1 << 40;

/// Checks that an engine does what [`Engine`] says. It uses numbers from 2^40 on, so once for an
/// engine.
///
/// # Panics
/// If it does not.
pub fn conformance(engine: &dyn Engine) {
    assert!(!engine.name().is_empty(), "an engine has a name");
    assert!(engine.object_bytes() > 0, "an object has a length");
    what_was_put_comes_back(engine);
    what_is_not_there_is_missing(engine);
    what_was_deleted_is_missing(engine);
    a_deadline_in_the_past_is_an_error(engine);
    threads_do_not_disturb_each_other(engine);
    engine.renew(&[FIRST, FIRST + 11], soon()).expect("a renewal, also of what is not there");
}

/// Long enough for a machine that is busy.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at + 1).wrapping_mul(2 * number + 1) % 251) as u8).collect()
}

fn get(engine: &dyn Engine, number: u64, at: usize, len: usize) -> Result<Vec<u8>, EngineError> {
    let mut out = vec![0xdd; len];
    engine.get(number, at, &mut out, soon()).map(|()| out)
}

fn what_was_put_comes_back(engine: &dyn Engine) {
    let long = engine.object_bytes();
    for (number, len) in (FIRST..).zip([1, 528, 65_472, long]) {
        let object = bytes(number, len);
        engine.put(number, &object, soon()).expect("a put");
        assert!(get(engine, number, 0, len).expect("a get") == object, "all {len} bytes");
        let third = len / 3;
        for (at, len) in [(0, 1), (len - 1, 1), (third, third), (third, len - third)] {
            let range = get(engine, number, at, len).expect("a get of a range");
            assert!(range == object[at..at + len], "bytes {at}+{len} of {number}");
        }
    }
}

fn what_is_not_there_is_missing(engine: &dyn Engine) {
    let (number, never) = (FIRST + 10, FIRST + 11);
    engine.put(number, &bytes(number, 1000), soon()).expect("a put");
    assert_eq!(get(engine, never, 0, 10), Err(EngineError::Missing), "never put");
    for (at, len) in [(0, 1001), (999, 2), (1000, 1), (5000, 10)] {
        let beyond = get(engine, number, at, len);
        assert_eq!(beyond, Err(EngineError::Missing), "bytes {at}+{len} of 1000");
    }
}

fn what_was_deleted_is_missing(engine: &dyn Engine) {
    let numbers: Vec<u64> = (FIRST + 20..FIRST + 30).collect();
    for &number in &numbers {
        engine.put(number, &bytes(number, 700), soon()).expect("a put");
    }
    let (gone, kept) = numbers.split_at(7);
    engine.delete(gone, soon()).expect("a deletion");
    engine.delete(gone, soon()).expect("a deletion of what is not there");
    engine.delete(&[], soon()).expect("a deletion of nothing");
    for &number in gone {
        assert_eq!(get(engine, number, 0, 700), Err(EngineError::Missing), "{number} is deleted");
    }
    for &number in kept {
        assert!(get(engine, number, 0, 700).expect("a get") == bytes(number, 700));
    }
}

fn a_deadline_in_the_past_is_an_error(engine: &dyn Engine) {
    let (number, late) = (FIRST + 40, Instant::now());
    let mut out = [0; 10];
    assert!(engine.put(number, &bytes(number, 10), late).is_err(), "a put too late");
    assert!(engine.get(FIRST, 0, &mut out[..1], late).is_err(), "a get too late");
    assert!(engine.delete(&[number], late).is_err(), "a deletion too late");
}

fn threads_do_not_disturb_each_other(engine: &dyn Engine) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in (FIRST + 1000 + 100 * thread..).take(10) {
                    let object = bytes(number, 10_000 + number as usize % 100);
                    engine.put(number, &object, soon()).expect("a put");
                    let range = get(engine, number, 100, 9000).expect("a get");
                    assert!(range == object[100..9100], "{number} has its own bytes");
                }
            });
        }
    });
}
