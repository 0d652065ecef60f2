//! Places that cannot be used: each refusal names the remedy and no secret.

use zfold_testing::s3::{S3, ready};

use crate::{place, soon};

fn refused(text: &str, variables: &[(&str, String)], parts: &[&str]) {
    let place = place(text, variables).expect("a place");
    let error = zfold_far::connect(&place, soon()).expect_err("refused").to_string();
    for part in parts {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
}

#[test]
fn a_bucket_that_is_not_there_is_refused() {
    if !ready("a_bucket_that_is_not_there_is_refused") {
        return;
    }
    let server = S3::start();
    refused("s3://none/cold", &server.variables(), &["s3://none/cold", "create the bucket"]);
}

#[test]
fn a_server_that_is_not_there_is_refused() {
    let variables = [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
    ];
    let parts = ["s3://pages/cold at http://127.0.0.1:1", "AWS_ENDPOINT_URL"];
    refused("s3://pages/cold", &variables, &parts);
}

#[test]
fn places_of_no_single_object_are_refused() {
    for (text, part) in [("s3://pages", "s3://pages/KEY"), ("redis://h", "s3://BUCKET/KEY")] {
        let place = place(text, &[]).expect("a place");
        let error = zfold_far::object(&place).expect_err(text).to_string();
        assert!(error.contains(part), "{error}");
    }
}
