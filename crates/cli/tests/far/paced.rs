//! A disk that may send so many bytes a second and no more.

use std::time::{Duration, Instant};

use tempfile::tempdir;
use zfold_testing::redis::{self, Server};

use crate::server::{Server as Disk, noise};

const PAGES: u32 = 512;
const PAGE: u64 = 4096;

#[test]
fn a_disk_sends_no_more_than_its_bandwidth() {
    zfold_testing::needs!(redis::ready());
    let (runtime, redis) = (tempdir().expect("a directory"), Server::start(&[]));
    let line = ["--size", "64MiB", "--backing", &redis.place(), "--far-bandwidth", "1MiB"];
    let disk = Disk::start(runtime.path(), &line);
    let mut client = disk.connect("");
    for page in 0..PAGES {
        client.write(u64::from(page) * PAGE, &noise(page)).expect("written");
    }
    let begun = Instant::now();
    let all = format!("page_indexes=0-{}", PAGES - 1);
    assert_eq!(disk.ask(&["writeback", &all])["pages"], PAGES);
    // Two mebibytes, of which the last object, a quarter of one at most, takes no time.
    assert!(begun.elapsed() >= Duration::from_millis(1750), "{:?}", begun.elapsed());
    let stat = disk.stat();
    let far = &stat["disks"][0]["far"];
    // How long depends on what sending itself takes.
    assert!(far["waited_us_total"].as_u64() > Some(0), "{far}");
    assert_eq!((&far["failures_total"], &far["absences_total"]), (&0.into(), &0.into()));
    // Reading waits for nothing.
    let begun = Instant::now();
    for page in 0..PAGES {
        assert!(client.read(u64::from(page) * PAGE, PAGE as usize) == noise(page), "page {page}");
    }
    println!("{PAGES} pages read in {:?}", begun.elapsed());
    assert_eq!(disk.stop().0, Some(0));
}
