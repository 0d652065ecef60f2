//! Pages in three tiers: memory, a file, and a Redis to which they go when they are old.

use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::redis::{self, Server};
use zfold_testing::wait_for;

use crate::common::command;
use crate::runs::{Sort, can_manage, text};
use crate::server::{Server as Disk, noise, text as path};

const PAGES: u32 = 1024;
const PAGE: u64 = 4096;

fn figure(far: &Value, name: &str) -> u64 {
    far[name].as_u64().unwrap_or_else(|| panic!("no {name} in {far}"))
}

fn far(disk: &Disk) -> Value {
    disk.stat()["disks"][0]["far"].clone()
}

fn write(disk: &Disk, pages: std::ops::Range<u32>, version: u32) {
    let mut client = disk.connect("");
    for page in pages.clone() {
        client.write(u64::from(page) * PAGE, &noise(page + version)).expect("written");
    }
    let all = format!("page_indexes={}-{}", pages.start, pages.end - 1);
    assert_eq!(disk.ask(&["writeback", &all])["pages"], pages.len());
}

fn check(disk: &Disk, pages: std::ops::Range<u32>, version: u32) {
    let mut client = disk.connect("");
    for page in pages {
        let read = client.read(u64::from(page) * PAGE, PAGE as usize);
        assert!(read == noise(page + version), "page {page}");
    }
}

fn wait_until(disk: &Disk, done: impl Fn(&Value) -> bool) {
    wait_for(|| {
        let far = far(disk);
        if done(&far) { Ok(()) } else { Err(far) }
    });
}

#[test]
fn pages_of_a_disk_go_from_its_file_to_redis_when_they_are_old() {
    if !redis::ready("pages_of_a_disk_go_from_its_file_to_redis_when_they_are_old") {
        return;
    }
    let (runtime, redis) = (tempdir().expect("a directory"), Server::start(&[]));
    let file = runtime.path().join("cold");
    let (file, place) = (["--backing", path(&file), "--backing-size", "8MiB"], redis.place());
    let line = [&["--size", "64MiB"], &file[..], &["--far", &place, "--far-after", "3s"]].concat();
    let disk = Disk::start(runtime.path(), &line);
    let begun = Instant::now();
    write(&disk, 0..PAGES, 0);
    let young = (redis.values(), figure(&far(&disk), "near_bytes"));
    if begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(young, (0, u64::from(PAGES) * PAGE));
    }
    check(&disk, 0..PAGES, 0);
    wait_until(&disk, |far| figure(far, "near_bytes") == 0);
    assert!(redis.values() > 0);
    check(&disk, 0..PAGES, 0);

    // While the server is silent, what is written stays in the file; it goes later.
    redis.stop();
    write(&disk, PAGES..2 * PAGES, 7);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(figure(&far(&disk), "near_bytes"), u64::from(PAGES) * PAGE);
    check(&disk, PAGES..2 * PAGES, 7);
    redis.go_on();
    wait_until(&disk, |far| figure(far, "near_bytes") == 0);
    check(&disk, PAGES..2 * PAGES, 7);
    check(&disk, 0..PAGES, 0);
    assert_eq!(disk.stop().0, Some(0));
}

#[test]
fn what_exceeds_the_day_or_the_file_goes_to_redis_at_once() {
    if !redis::ready("what_exceeds_the_day_or_the_file_goes_to_redis_at_once") {
        return;
    }
    for limit in [["--backing-size", "2MiB"], ["--backing-per-day", "2MiB"]] {
        let (runtime, redis) = (tempdir().expect("a directory"), Server::start(&[]));
        let file = runtime.path().join("cold");
        let (file, place) = (["--backing", path(&file)], redis.place());
        let line = [&["--size", "64MiB"], &file[..], &limit, &["--far", &place]].concat();
        let disk = Disk::start(runtime.path(), &line);
        write(&disk, 0..PAGES, 0);
        let there = far(&disk);
        assert!(figure(&there, "near_bytes") <= 2 << 20, "{limit:?}: {there}");
        assert!(figure(&there, "live_bytes") >= 2 << 20, "{limit:?}: {there}");
        check(&disk, 0..PAGES, 0);
        assert_eq!(disk.stop().0, Some(0));
        assert_eq!(redis.values(), 0, "nothing is left behind");
    }
}

#[test]
fn a_program_whose_pages_lie_in_three_tiers_says_what_it_says_alone() {
    let test = "a_program_whose_pages_lie_in_three_tiers_says_what_it_says_alone";
    if !redis::ready(test) || !can_manage(test) {
        return;
    }
    let (folder, redis) = (tempdir().expect("a directory"), Server::start(&[]));
    let file = folder.path().join("cold");
    let (place, sort) = (redis.place(), Sort::new(1_000_003));
    let limits = ["run", "--limit", "16MiB", "--store-limit", "8MiB", "--backing-size", "8MiB"];
    let tiers = ["--backing", path(&file), "--far", &place, "--far-after", "1s"];
    let output = sort.output(command(&limits).args(tiers));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(text(&output.stdout) == sort.sorted, "it is not sorted");
    let report: Value = serde_json::from_str(&said).expect(&said);
    let far = &report["far"];
    assert!(figure(far, "puts_total") > 0 && figure(far, "gets_total") > 0, "{far}");
    assert_eq!((figure(far, "failures_total"), redis.values()), (0, 0), "{far}");
}
