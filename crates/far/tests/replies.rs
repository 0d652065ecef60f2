//! What servers should not say: committed inputs of the fuzzer, each once.

use std::fs;
use std::path::Path;

use zfold_far::testing::replies;

/// Hands each input of a folder to `take`.
fn each(kind: &str, take: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replies").join(kind);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let said = fs::read(&path).expect("bytes");
        let taken = std::panic::catch_unwind(|| take(&said));
        assert!(taken.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 5, "only {count} inputs");
}

#[cfg(feature = "redis")]
#[test]
fn replies_of_redis_are_read_or_refused() {
    each("redis", replies::redis);
}

#[test]
fn replies_of_nbd_are_read_or_refused() {
    each("nbd", replies::nbd);
}

#[cfg(feature = "s3")]
#[test]
fn answers_of_s3_are_read_or_refused() {
    each("s3", replies::s3);
}
