//! Devices whose snapshots, or cold pages, are in S3: a real server on loopback.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use zfold_testing::s3::{S3, ready};
use zfold_testing::wait_until;

use crate::common::assert_line;
use crate::server::{Server, noise, page, text, zfold};

/// Returns `zfold` with what leads to the server in its environment.
fn command(s3: &S3, runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = zfold(runtime, arguments);
    command.envs(s3.variables());
    command
}

fn start(s3: &S3, runtime: &Path, arguments: &[&str]) -> Server {
    Server::spawn(runtime, command(s3, runtime, &[&["disk", "--no-mlock"], arguments].concat()))
}

fn run(s3: &S3, runtime: &Path, arguments: &[&str]) -> Output {
    let line = [&["disk", "--no-mlock"], arguments].concat();
    command(s3, runtime, &line).output().expect("the program starts")
}

#[test]
fn contents_are_saved_to_s3_and_loaded_elsewhere() {
    if !ready("contents_are_saved_to_s3_and_loaded_elsewhere") {
        return;
    }
    let (s3, runtime) = (S3::start(), tempdir().expect("a directory"));
    let place = "s3://pages/disks/a.zfs";
    let both = ["--load", place, "--save", place];
    let server = start(&s3, runtime.path(), &[&["--size", "16MiB"], &both[..]].concat());
    server.heard("starts empty");
    let mut client = server.connect("");
    client.write(0, &page(1)).expect("written");
    client.write(8 << 20, &noise(2)).expect("written");
    assert_eq!(server.stop(), (Some(0), Vec::new()));
    assert_eq!((s3.keys(""), s3.uploads()), (vec!["disks/a.zfs".to_owned()], 0));

    // The size is that of the snapshot.
    let elsewhere = tempdir().expect("a directory");
    let server = start(&s3, elsewhere.path(), &["--load", place]);
    let mut client = server.connect("");
    assert_eq!(client.size, 16 << 20);
    assert_eq!(client.read(0, 4096), page(1));
    assert_eq!(client.read(8 << 20, 4096), noise(2));
    client.write(4096, &page(3)).expect("written");
    let saved = server.ask(&["save", "s3://pages/disks/b.zfs"]);
    assert_eq!((&saved["pages"], &saved["bytes"]), (&3.into(), &saved["sent_bytes"]), "{saved}");
    assert_eq!(server.stop().0, Some(0));

    // What lies there is the file that would have been written.
    let file = elsewhere.path().join("b.zfs");
    fs::write(&file, s3.get("disks/b.zfs")).expect("written");
    let server = start(&s3, elsewhere.path(), &["--load", text(&file)]);
    assert_eq!(server.connect("").read(4096, 4096), page(3));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_save_that_was_killed_is_resumed() {
    const PAGES: u32 = 32_768;
    if !ready("a_save_that_was_killed_is_resumed") {
        return;
    }
    let (mut s3, runtime) = (S3::start(), tempdir().expect("a directory"));
    let file = runtime.path().join("disk.zfs");
    let server = start(&s3, runtime.path(), &["--size", "128MiB", "--save", text(&file)]);
    let mut client = server.connect("");
    for number in 0..PAGES {
        client.write(u64::from(number) * 4096, &noise(number)).expect("written");
    }
    assert_eq!(server.stop().0, Some(0));

    let place = "s3://pages/disk.zfs";
    s3.put("disk.zfs", b"the one of before");
    let server = start(&s3, runtime.path(), &["--load", text(&file)]);
    let ask = command(&s3, runtime.path(), &["ctl", "save", place]).spawn();
    let mut ask = ask.expect("the program starts");
    wait_until("some parts are there", || {
        let listed = s3.keys("disk.zfs.parts");
        listed.len() == 1 && s3.get("disk.zfs.parts").split(|byte| *byte == b'\n').count() > 5
    });
    // The server waits, so that the save cannot just end before it is killed.
    let serving = Pid::from_raw(s3.pid() as i32).expect("a process");
    kill_process(serving, Signal::STOP).expect("it runs");
    server.kill();
    kill_process(serving, Signal::CONT).expect("it runs");
    assert_eq!(ask.wait().expect("it ends").code(), Some(1));
    assert_eq!(s3.get("disk.zfs"), b"the one of before");

    let server = start(&s3, runtime.path(), &["--load", text(&file)]);
    let saved = server.ask(&["save", place]);
    let (bytes, sent) = (saved["bytes"].as_u64(), saved["sent_bytes"].as_u64());
    assert!(bytes > Some(128 << 20) && sent <= bytes.map(|bytes| bytes - (8 << 20)), "{saved}");
    assert_eq!((s3.keys(""), s3.uploads()), (vec!["disk.zfs".to_owned()], 0));
    assert_eq!(server.stop().0, Some(0));

    let server = start(&s3, runtime.path(), &["--load", place]);
    let mut client = server.connect("");
    for number in 0..PAGES {
        assert!(client.read(u64::from(number) * 4096, 4096) == noise(number), "page {number}");
    }
    assert_eq!(server.stop().0, Some(0));

    // One that is cut off, one with a wrong byte, one that is not there, and no server.
    let whole = s3.get("disk.zfs");
    let refused = |s3: &S3, part: &str| {
        let output = run(s3, runtime.path(), &["--size", "128MiB", "--load", place]);
        assert_line(&output, 1, &[place, part, "give another snapshot"]);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"));
    };
    s3.put("disk.zfs", &whole[..whole.len() - 5000]);
    refused(&s3, "damaged or truncated");
    let mut wrong = whole.clone();
    wrong[whole.len() / 2] ^= 1;
    s3.put("disk.zfs", &wrong);
    refused(&s3, "damaged or truncated");
    s3.delete("disk.zfs");
    refused(&s3, "it is not there");
    s3.put("disk.zfs.parts", b"zfold parts 1\nan id\n");
    refused(&s3, "saving it was interrupted");
    s3.kill();
    let output = run(&s3, runtime.path(), &["--size", "1MiB", "--backing", "s3://pages/cold"]);
    assert_line(&output, 1, &["s3://pages/cold at http://127.0.0.1", "AWS_ENDPOINT_URL"]);
}

#[test]
fn a_device_with_pages_in_s3_loses_what_s3_loses() {
    // Few: the server takes many milliseconds for each.
    const PAGES: u64 = 1024;
    if !ready("a_device_with_pages_in_s3_loses_what_s3_loses") {
        return;
    }
    let (mut s3, runtime) = (S3::start(), tempdir().expect("a directory"));
    let backing = ["--limit", "2MiB", "--backing", "s3://pages/cold", "--backing-size", "16MiB"];
    let server = start(&s3, runtime.path(), &[&["--size", "4MiB"], &backing[..]].concat());
    let mut client = server.connect("");
    for at in 0..PAGES {
        client.write(at * 4096, &noise(at as u32)).expect("written");
    }
    let far = server.stat()["disks"][0]["far"].clone();
    assert!(far["objects"].as_u64() > Some(1), "{far}");
    assert!(!server.stat().to_string().contains("hunter2"), "{far}");
    let keys = s3.keys("cold/");
    let objects: Vec<_> = keys.iter().filter(|key| !key.ends_with("lease")).collect();
    // Whole pages are written there as they are; none of them can be seen.
    let secret = &noise(7)[..64];
    for bytes in objects.iter().filter_map(|key| s3.find(key)) {
        assert!(!bytes.windows(64).any(|part| part == secret), "it can be read");
    }
    // What the cleaner has put together with others since then is not missed.
    let mut failed = Vec::new();
    for key in objects.iter().filter(|key| s3.find(key).is_some()) {
        s3.delete(key);
        for at in 0..PAGES {
            match client.try_read(at * 4096, 4096) {
                Ok(read) => assert!(read == noise(at as u32), "page {at}"),
                Err(_) => failed.push(at),
            }
        }
        if !failed.is_empty() {
            break;
        }
    }
    assert!(!failed.is_empty() && failed.len() as u64 * 2 < PAGES, "{} pages", failed.len());
    client.write(failed[0] * 4096, &page(5)).expect("written");
    assert_eq!(client.read(failed[0] * 4096, 4096), page(5));

    s3.kill();
    let begun = Instant::now();
    let gone = (0..PAGES).find(|at| client.try_read(at * 4096, 4096).is_err()).expect("an error");
    assert!(begun.elapsed() < Duration::from_secs(60), "{gone} took {:?}", begun.elapsed());
    let far = server.stat()["disks"][0]["far"].clone();
    let last = far["last_failure"].as_str().unwrap_or_default();
    assert!(last.contains("s3://pages/cold at http://127.0.0.1"), "{far}");
}
