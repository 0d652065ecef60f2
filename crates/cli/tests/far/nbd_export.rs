//! Pages at an NBD server of another machine: here, another `zfold disk`.

use rustix::process::Signal;
use tempfile::{TempDir, tempdir};
use zfold_testing::skip::has_loopback;

use crate::common::{assert_line, needs};
use crate::server::{Server as Disk, noise, zfold};

const PAGES: u32 = 1024;
const PAGE: u64 = 4096;

/// A disk that serves NBD on loopback.
fn remote() -> (TempDir, Disk, String) {
    let runtime = tempdir().expect("a directory");
    let line = ["disk", "--no-mlock", "--size", "64MiB", "--nbd", "tcp:127.0.0.1:0"];
    let disk = Disk::spawn(runtime.path(), zfold(runtime.path(), &line));
    let place = disk.addresses[0].split_whitespace().next().expect("an address").to_owned();
    (runtime, disk, place)
}

fn used(disk: &Disk) -> u64 {
    disk.stat()["disks"][0]["zswap"]["stored_pages"].as_u64().expect("a number")
}

#[test]
fn a_disk_keeps_pages_at_another_one_and_waits_for_it() {
    needs!(has_loopback());
    let (_runtime, remote, place) = remote();
    let runtime = tempdir().expect("a directory");
    let line = ["disk", "--no-mlock", "--size", "64MiB", "--backing", &place];
    let mut long = zfold(runtime.path(), &[&line[..], &["--backing-size", "1GiB"]].concat());
    let output = long.output().expect("it starts");
    assert_line(&output, 1, &["nbd://127.0.0.1:", "give a smaller --backing-size"]);
    let disk = Disk::start(runtime.path(), &line[2..]);
    let mut client = disk.connect("");
    for page in 0..PAGES {
        client.write(u64::from(page) * PAGE, &noise(page)).expect("written");
    }
    let all = format!("page_indexes=0-{}", PAGES - 1);
    assert_eq!(disk.ask(&["writeback", &all])["pages"], PAGES);
    let far = &disk.stat()["disks"][0]["far"];
    assert!(far["engine"].as_str().expect("text").starts_with("nbd at 127.0.0.1:"), "{far}");
    assert!(far["live_bytes"].as_u64() > Some(4 << 20) && used(&remote) > 1000, "{far}");
    for page in 0..PAGES {
        assert!(client.read(u64::from(page) * PAGE, PAGE as usize) == noise(page), "page {page}");
    }
    disk.ask(&["writeback", &all]);
    remote.signal(Signal::STOP);
    let waker = std::thread::spawn({
        let pause = std::time::Duration::from_secs(4);
        move || {
            std::thread::sleep(pause);
            remote.signal(Signal::CONT);
            remote
        }
    });
    for page in 0..PAGES {
        assert!(client.read(u64::from(page) * PAGE, PAGE as usize) == noise(page), "page {page}");
    }
    let remote = waker.join().expect("no panic");
    assert_eq!(disk.stop().0, Some(0));
    assert_eq!(used(&remote), 0, "nothing is left behind");
    assert_eq!(remote.stop().0, Some(0));
}
