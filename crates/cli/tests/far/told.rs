//! What a disk says when other machines go, and when they are back.

use tempfile::tempdir;
use zfold_testing::redis::{self, Server};

use crate::server::{Server as Disk, noise, zfold};

const PAGE: u64 = 4096;

/// Asks for pages to be written, which fails.
fn fails(disk: &Disk, pages: &str) {
    let output = disk.ctl(&["writeback", pages]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no answer in time"), "{said}");
}

#[test]
fn a_disk_says_once_that_its_server_is_gone_and_once_that_it_is_back() {
    zfold_testing::needs!(redis::ready());
    let (runtime, redis) = (tempdir().expect("a directory"), Server::start(&[]));
    let line = ["--size", "64MiB", "--backing", &redis.place()];
    let disk = Disk::start(runtime.path(), &line);
    let mut client = disk.connect("");
    for page in 0..64 {
        client.write(u64::from(page) * PAGE, &noise(page)).expect("written");
    }
    disk.ask(&["writeback", "page_indexes=0-31"]);
    redis.stop();
    // It takes the deadline until that is an error.
    fails(&disk, "page_indexes=32-47");
    let name = format!("zfold: disk: redis at {}", redis.address());
    let silent = disk.heard("");
    assert!(silent.starts_with(&format!("{name} does not answer; ")), "{silent}");
    let gone = disk.heard("");
    assert!(gone.starts_with(&name) && gone.contains("pages stay in memory"), "{gone}");
    assert!(gone.contains("start it") && gone.contains("mem_limit=SIZE"), "{gone}");
    let stat = zfold(runtime.path(), &["stat"]).output().expect("it starts");
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains("absent") && stat.contains("no answer in time"), "{stat}");
    // More calls of which nothing is to be said.
    for page in 32..48 {
        fails(&disk, &format!("page_index={page}"));
        assert!(client.read(page * PAGE, PAGE as usize) == noise(page as u32), "page {page}");
    }
    redis.go_on();
    // In whichever order.
    let back = [disk.heard(""), disk.heard("")];
    for what in ["takes pages again", "answers again"] {
        let line = format!("{name} {what} after ");
        assert!(back.iter().any(|said| said.starts_with(&line)), "{back:?}");
    }
    for page in 0..64 {
        assert!(client.read(page * PAGE, PAGE as usize) == noise(page as u32), "page {page}");
    }
    let (status, said) = disk.stop();
    assert_eq!((status, said), (Some(0), Vec::new()));
}
