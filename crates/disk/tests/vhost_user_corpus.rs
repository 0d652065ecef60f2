//! Monitors that did harm once or might: each file of `vhost_user_corpus` is what one does, as
//! `monitor/script.rs` reads it. The fuzzer begins with them.

mod common;
mod monitor;
#[path = "monitor/script.rs"]
mod script;

use std::fs;
use std::path::Path;
use std::time::Duration;

use monitor::Guest;
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use zfold_testing::wait_until;

#[test]
fn what_monitors_did_once_harms_nobody() {
    let server = monitor::serve();
    let data = [7; 512];
    assert_eq!(Guest::connect(&server.socket).request(VIRTIO_BLK_T_OUT, 9, &data).0, 0);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vhost_user_corpus");
    let mut files: Vec<_> =
        fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let script = fs::read(&file).unwrap();
        // On a busy machine a guest may leave before its request is served.
        wait_until(format_args!("{} is served", file.display()), || {
            script::play(&server.socket, &script, Duration::from_millis(20));
            !file.ends_with("request") || server.disk.stats().reads_total > 0
        });
        script::assert_serves(&server.socket);
    }
    let (status, back) = Guest::connect(&server.socket).request(VIRTIO_BLK_T_IN, 9, &[0; 512]);
    assert!(status == 0 && back == data);
    // One of them did get a request served: otherwise they show little.
    assert!(server.disk.stats().reads_total > 1);
}
