//! A disk whose only copies are lost: an error for each page that was there, and for no other.

use std::time::Instant;

use tempfile::tempdir;
use zfold_testing::redis::{self, Cluster};

use crate::server::{Server, noise};

const PAGES: u32 = 512;
const PAGE: usize = 4096;

/// Bytes of a unit here, and sealed.
const UNIT: usize = 512;
const SEALED: usize = 528;

const EIO: u32 = 5;

#[test]
fn with_one_copy_exactly_the_lost_pages_are_errors() {
    if !redis::ready("with_one_copy_exactly_the_lost_pages_are_errors") {
        return;
    }
    let (runtime, cluster) = (tempdir().expect("a directory"), Cluster::start());
    let line = ["--size", "64MiB", "--backing", &cluster.place(1)];
    let server = Server::start(runtime.path(), &line);
    let mut client = server.connect("");
    for page in 0..PAGES {
        client.write(u64::from(page) * PAGE as u64, &noise(page)).expect("written");
    }
    let all = format!("page_indexes=0-{}", PAGES - 1);
    assert_eq!(server.ask(&["writeback", &all])["pages"], PAGES);

    let master = &cluster.nodes[cluster.masters()[1]];
    let len = |key: &str| master.cli(&["STRLEN", key]).parse::<usize>().expect("bytes");
    let lost = master.cli(&["KEYS", "zfold:*"]).lines().map(len).sum::<usize>() / SEALED;
    let lost = lost * UNIT / PAGE;
    assert!(lost > 0 && lost < PAGES as usize, "{lost} pages are there");
    master.cli(&["FLUSHALL"]);

    let begun = Instant::now();
    let mut read = |page: u32| match client.try_read(u64::from(page) * PAGE as u64, PAGE) {
        Ok(bytes) => {
            assert!(bytes == noise(page), "other bytes of page {page}");
            false
        }
        Err(error) => {
            assert_eq!(error, EIO, "page {page}");
            true
        }
    };
    let failed: Vec<u32> = (0..PAGES).filter(|page| read(*page)).collect();
    assert_eq!(failed.len(), lost, "those that were there, and no others");
    println!("{lost} of {PAGES} pages in {:.1} s", begun.elapsed().as_secs_f64());
    // What is written again is there.
    for page in &failed {
        client.write(u64::from(*page) * PAGE as u64, &noise(*page)).expect("written");
    }
    for page in 0..PAGES {
        assert!(client.read(u64::from(page) * PAGE as u64, PAGE) == noise(page), "page {page}");
    }
    assert_eq!(server.stop().0, Some(0));
}
