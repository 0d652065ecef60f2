//! A server that says for a while that it cannot now: nothing is given up because of that.

use std::io::Write as _;
use std::time::{Duration, Instant};

use zfold_far::{EngineError, Object};
use zfold_testing::random::noise as bytes;
use zfold_testing::s3::{BUCKET, S3, ready};

use crate::gate::Gate;
use crate::{place, soon};

const PART: usize = 8 << 20;

/// Answers so many requests that contain all of `parts` with a status and a code.
fn refuses(
    gate: &Gate,
    parts: &'static [&'static str],
    mut times: u32,
    (status, code): (u16, &'static str),
) {
    gate.answers(move |line| {
        let meant = times > 0 && parts.iter().all(|part| line.contains(part));
        times -= u32::from(meant);
        meant.then_some((status, code))
    });
}

fn object(gate: &Gate, server: &S3) -> Box<dyn Object> {
    let place = place(&format!("s3://{BUCKET}/disk.zfs"), &gate.variables(server));
    zfold_far::object(&place.expect("a place")).expect("an object")
}

#[test]
fn an_engine_that_is_busy_has_refused_nothing() {
    if !ready("an_engine_that_is_busy_has_refused_nothing") {
        return;
    }
    let server = S3::start();
    let gate = Gate::before(&server);
    let place = place(&format!("s3://{BUCKET}/cold"), &gate.variables(&server)).expect("a place");
    let engine = zfold_far::connect(&place, soon()).expect("an engine");
    for (status, code) in [(500, "InternalError"), (503, "SlowDown"), (429, "TooManyRequests")] {
        refuses(&gate, &["PUT"], 1000, (status, code));
        let until = Instant::now() + Duration::from_secs(5);
        let error = engine.put(u64::from(status), b"sealed", until).expect_err("it is busy");
        let told = matches!(&error, EngineError::Unreachable(why) if why.contains(code));
        assert!(told || error == EngineError::Late, "{error:?}");
    }
    refuses(&gate, &["PUT"], 1000, (403, "AccessDenied"));
    let error = engine.put(1, b"sealed", soon()).expect_err("it will not");
    assert!(matches!(error, EngineError::Refused(_)), "{error:?}");
    // What passes within the library's own attempts is not even seen.
    refuses(&gate, &["PUT"], 2, (503, "SlowDown"));
    engine.put(2, b"sealed", soon()).expect("a put");
}

#[test]
fn a_write_goes_on_when_the_server_is_busy_for_a_while() {
    if !ready("a_write_goes_on_when_the_server_is_busy_for_a_while") {
        return;
    }
    let server = S3::start();
    let gate = Gate::before(&server);
    let object = object(&gate, &server);
    let all = bytes(1, 3 * PART);
    for (parts, status) in [
        (&["PUT", "partNumber=2"][..], 503),
        (&["POST", "disk.zfs?uploadId="], 500),
        (&["POST", "disk.zfs?uploadId="], 200),
    ] {
        // More often than the library makes a request again by itself.
        refuses(
            &gate,
            parts,
            6,
            (status, if status == 500 { "InternalError" } else { "SlowDown" }),
        );
        let mut upload = object.write().expect("begun");
        upload.write_all(&all).expect("sent");
        let written = upload.complete().unwrap_or_else(|why| panic!("{parts:?} {status}: {why}"));
        assert_eq!(written.sent_bytes, all.len() as u64, "{parts:?} {status}");
        assert!(server.get("disk.zfs") == all);
        assert_eq!(server.uploads(), 0);
        server.delete("disk.zfs");
    }
}

#[test]
fn a_write_that_was_interrupted_goes_on_with_a_server_that_is_busy_at_first() {
    if !ready("a_write_that_was_interrupted_goes_on_with_a_server_that_is_busy_at_first") {
        return;
    }
    let server = S3::start();
    let gate = Gate::before(&server);
    let object = object(&gate, &server);
    let all = bytes(2, 7 * PART);
    let mut upload = object.write().expect("begun");
    upload.write_all(&all).expect("sent");
    drop(upload);
    refuses(&gate, &["PUT", "partNumber=1&"], 6, (503, "SlowDown"));
    let mut upload = object.write().expect("begun");
    upload.write_all(&all).expect("sent");
    let written = upload.complete().expect("completed");
    assert!(written.sent_bytes <= written.bytes - 2 * PART as u64, "{written:?}");
    assert_eq!(server.uploads(), 0, "no other upload was begun");
    assert!(server.get("disk.zfs") == all);

    // An upload that is not taken for another reason is not left there.
    let mut upload = object.write().expect("begun");
    upload.write_all(&all[..2 * PART]).expect("sent");
    drop(upload);
    refuses(&gate, &["PUT", "partNumber=1&"], 1, (400, "InvalidRequest"));
    let mut upload = object.write().expect("begun");
    upload.write_all(&all).expect("sent");
    upload.complete().expect("completed");
    assert_eq!(server.uploads(), 0);
}
