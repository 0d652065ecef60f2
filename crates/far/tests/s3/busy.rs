//! A server that says for a while that it cannot now: nothing is given up because of that.

use std::io::Write as _;

use zfold_far::Object;
use zfold_testing::random::noise as bytes;
use zfold_testing::s3::{BUCKET, S3, ready};

use crate::gate::Gate;
use crate::place;

const PART: usize = 16 << 20;

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
fn a_write_goes_on_when_the_server_is_busy_for_a_while() {
    zfold_testing::needs!(ready());
    let server = S3::start();
    let gate = Gate::before(&server);
    let object = object(&gate, &server);
    let all = bytes(1, 2 * PART + 1);
    for (parts, status) in [
        (&["PUT", "partNumber=2"][..], 503),
        (&["PUT", "partNumber=3"], 429),
        (&["POST", "disk.zfs?uploadId="], 500),
    ] {
        refuses(&gate, parts, 6, (status, "SlowDown"));
        let mut upload = object.write().expect("begun");
        upload.write_all(&all).expect("sent");
        upload.complete().unwrap_or_else(|why| panic!("{parts:?} {status}: {why}"));
        assert!(server.get("disk.zfs") == all);
        assert_eq!(server.uploads(), 0);
        server.delete("disk.zfs");
    }
}

#[test]
fn a_write_that_is_refused_ends_and_leaves_no_upload() {
    zfold_testing::needs!(ready());
    let server = S3::start();
    let gate = Gate::before(&server);
    let object = object(&gate, &server);
    refuses(&gate, &["PUT", "partNumber=2"], 1000, (403, "AccessDenied"));
    let mut upload = object.write().expect("begun");
    let sent = upload.write_all(&bytes(2, 4 * PART)).and_then(|()| upload.complete());
    let error = sent.expect_err("it will not").to_string();
    assert!(error.contains("AccessDenied") && error.contains("AWS_ACCESS_KEY_ID"), "{error}");
    assert_eq!((server.keys(""), server.uploads()), (Vec::new(), 0));
}
