//! Places that cannot be used: each refusal names the remedy and no secret.

use std::time::Instant;

use zfold_testing::s3::{S3, ready};

use crate::place;

fn refused(text: &str, variables: &[(&str, String)], parts: &[&str]) {
    let place = place(text, variables).expect("a place");
    let object = zfold_far::object(&place).expect("an object");
    let error = object.try_write().expect_err("refused").to_string();
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
}

#[test]
fn a_bucket_that_is_not_there_is_refused() {
    zfold_testing::needs!(ready());
    let server = S3::start();
    refused("s3://none/disk", &server.variables(), &["NoSuchBucket", "create the bucket"]);
}

#[test]
fn places_of_no_single_object_are_refused() {
    for (text, part) in [("s3://pages", "s3://pages/KEY"), ("redis://h", "s3://BUCKET/KEY")] {
        let place = place(text, &[]).expect("a place");
        let error = zfold_far::object(&place).expect_err(text).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn pages_are_not_kept_in_s3() {
    let place = place("s3://pages/cold", &[]).expect("a place");
    let error = zfold_far::connect(&place, Instant::now()).expect_err("refused").to_string();
    assert!(error.contains("keeps snapshots only: give a file, redis://HOST"), "{error}");
}
