//! Devices whose snapshots are in S3: a real server on loopback.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use zfold_testing::s3::{S3, ready};
use zfold_testing::wait_until;

use crate::common::{assert_line, needs};
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
    needs!(ready());
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
    let bytes = s3.get("disks/b.zfs").len();
    assert_eq!((&saved["pages"], &saved["bytes"]), (&3.into(), &bytes.into()), "{saved}");
    assert_eq!(server.stop().0, Some(0));

    // What lies there is the file that would have been written.
    let file = elsewhere.path().join("b.zfs");
    fs::write(&file, s3.get("disks/b.zfs")).expect("written");
    let server = start(&s3, elsewhere.path(), &["--load", text(&file)]);
    assert_eq!(server.connect("").read(4096, 4096), page(3));
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_save_that_is_killed_leaves_the_snapshot_of_before() {
    const PAGES: u32 = 16_384;
    needs!(ready());
    let (s3, runtime) = (S3::start(), tempdir().expect("a directory"));
    let place = "s3://pages/disk.zfs";
    let server = start(&s3, runtime.path(), &["--size", "64MiB"]);
    let mut client = server.connect("");
    for number in 0..PAGES {
        client.write(u64::from(number) * 4096, &noise(number)).expect("written");
    }
    server.ask(&["save", place]);
    let whole = s3.get("disk.zfs");
    client.write(0, &page(3)).expect("written");
    let ask = command(&s3, runtime.path(), &["ctl", "save", place]).spawn();
    let mut ask = ask.expect("the program starts");
    wait_until("the save has begun", || s3.uploads() > 0);
    // The server waits, so that the save cannot just end before it is killed.
    let serving = Pid::from_raw(s3.pid() as i32).expect("a process");
    kill_process(serving, Signal::STOP).expect("it runs");
    server.kill();
    kill_process(serving, Signal::CONT).expect("it runs");
    assert_eq!(ask.wait().expect("it ends").code(), Some(1));
    assert!(s3.get("disk.zfs") == whole);

    let server = start(&s3, runtime.path(), &["--load", place]);
    let mut client = server.connect("");
    for number in 0..PAGES {
        assert!(client.read(u64::from(number) * 4096, 4096) == noise(number), "page {number}");
    }
    assert_eq!(server.stop().0, Some(0));

    // One that is cut off, one with a wrong byte, one that is not there, and no server.
    let refused = |s3: &S3, part: &str| {
        let output = run(s3, runtime.path(), &["--size", "64MiB", "--load", place]);
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
    let output = run(&s3, runtime.path(), &["--size", "1MiB", "--backing", "s3://pages/cold"]);
    assert_line(&output, 1, &["s3://pages/cold keeps snapshots only", "redis://HOST"]);
}
