//! Objects that are written and read as streams: complete or not there, and resumed.

use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use zfold_far::{Object, Written};
use zfold_testing::random::noise as bytes;
use zfold_testing::s3::{S3, ready};

use crate::object;

/// Length of a part.
const PART: usize = 8 << 20;

fn write(object: &dyn Object, bytes: &[u8]) -> io::Result<Written> {
    let mut upload = object.write()?;
    upload.write_all(bytes)?;
    upload.complete()
}

/// Writes `bytes`, and is then interrupted.
fn interrupted(object: &dyn Object, bytes: &[u8]) {
    let mut upload = object.write().expect("begun");
    upload.write_all(bytes).expect("sent");
}

fn read(object: &dyn Object) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    object.read()?.read_to_end(&mut out).map(|_| out)
}

#[test]
fn what_was_written_is_read_whatever_its_length() {
    if !ready("what_was_written_is_read_whatever_its_length") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "folder/disk.zfs");
    assert_eq!(object.size().expect("asked"), None);
    object.try_write().expect("it can be written");
    assert_eq!((server.keys(""), server.uploads()), (Vec::new(), 0), "no trace");
    for len in [0, 1, PART, PART + 1, 2 * PART + 4567] {
        let all = bytes(len as u64, len);
        let written = write(&*object, &all).expect("written");
        assert_eq!((written.bytes, written.sent_bytes), (len as u64, len as u64));
        assert_eq!(object.size().expect("asked"), Some(len as u64));
        assert!(read(&*object).expect("read") == all, "{len}");
        assert_eq!(server.keys(""), ["folder/disk.zfs"], "the list is gone");
    }
    assert_eq!(server.uploads(), 0);
}

#[test]
fn an_interrupted_write_goes_on_where_it_was() {
    if !ready("an_interrupted_write_goes_on_where_it_was") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let (old, all) = (bytes(1, 100_000), bytes(2, 8 * PART + 77));
    write(&*object, &old).expect("written");
    interrupted(&*object, &all[..7 * PART + 99]);
    assert!(read(&*object).expect("read") == old, "the object of before is there");
    let written = write(&*object, &all).expect("written");
    assert_eq!(written.bytes, all.len() as u64);
    // The first part is always sent; up to four may not have been acknowledged.
    assert!(written.sent_bytes <= written.bytes - 2 * PART as u64, "{written:?}");
    assert!(read(&*object).expect("read") == all);
    assert_eq!((server.keys(""), server.uploads()), (vec!["disk.zfs".to_owned()], 0));
}

#[test]
fn what_changed_since_an_interruption_is_sent_anew() {
    if !ready("what_changed_since_an_interruption_is_sent_anew") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let mut all = bytes(3, 3 * PART);
    interrupted(&*object, &all);
    all[PART + 5] ^= 1;
    all.truncate(2 * PART + 5);
    write(&*object, &all).expect("written");
    assert!(read(&*object).expect("read") == all, "one part is another, and there are fewer");
    assert_eq!(server.uploads(), 0);
}

#[test]
fn an_upload_that_the_server_forgot_begins_anew() {
    if !ready("an_upload_that_the_server_forgot_begins_anew") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let all = bytes(4, 2 * PART);
    let unfinished = "save it again";
    interrupted(&*object, &all);
    let error = read(&*object).expect_err("nothing is complete").to_string();
    assert!(error.contains(unfinished), "{error}");
    let list = String::from_utf8(server.get("disk.zfs.parts")).expect("text");
    let upload = list.lines().nth(1).expect("an id");
    server.delete(&format!("disk.zfs?uploadId={upload}"));
    let written = write(&*object, &all).expect("written");
    assert_eq!(written.sent_bytes, written.bytes);
    assert!(read(&*object).expect("read") == all);

    server.delete("disk.zfs");
    let error = read(&*object).expect_err("it is gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(!error.to_string().contains(unfinished), "{error}");

    // A list that is none, and what is given up.
    server.put("disk.zfs.parts", b"dear\n");
    let mut upload = object.write().expect("begun");
    upload.write_all(&all).expect("sent");
    upload.abort().expect("removed");
    assert_eq!((server.keys(""), server.uploads()), (Vec::new(), 0));
}

#[test]
fn a_list_that_is_wrong_makes_no_wrong_object() {
    if !ready("a_list_that_is_wrong_makes_no_wrong_object") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    // More parts than are on their way at a time.
    let all = bytes(5, 6 * PART);
    interrupted(&*object, &all);
    let list = String::from_utf8(server.get("disk.zfs.parts")).expect("text");
    let tag = list.lines().skip(3).find_map(|line| line.split('"').nth(1)).expect("a part");
    let wrong = list.replace(tag, &"0".repeat(tag.len()));
    server.put("disk.zfs.parts", wrong.as_bytes());
    let error = write(&*object, &all).expect_err("a part that is not there").to_string();
    assert!(error.contains("InvalidPart"), "{error}");
    assert_eq!(object.size().expect("asked"), None);
    let written = write(&*object, &all).expect("the list is not believed again");
    assert_eq!(written.sent_bytes, written.bytes);
    assert!(read(&*object).expect("read") == all);
}

#[test]
fn an_object_that_is_replaced_is_not_read_half() {
    if !ready("an_object_that_is_replaced_is_not_read_half") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    write(&*object, &bytes(6, 2 * PART)).expect("written");
    let mut input = object.read().expect("begun");
    let mut start = vec![0; 1000];
    input.read_exact(&mut start).expect("read");
    assert!(start == bytes(6, 1000));
    server.put("disk.zfs", &bytes(7, 2 * PART));
    let error = input.read_to_end(&mut Vec::new()).expect_err("another one");
    assert!(error.to_string().contains("PreconditionFailed"), "{error}");
}

#[test]
fn a_server_that_pauses_only_delays() {
    if !ready("a_server_that_pauses_only_delays") {
        return;
    }
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let all = bytes(8, 4 * PART);
    let pid = Pid::from_raw(server.pid() as i32).expect("a process");
    let mut upload = object.write().expect("begun");
    upload.write_all(&all[..PART]).expect("sent");
    kill_process(pid, Signal::STOP).expect("it runs");
    let waker = thread::spawn(move || {
        thread::sleep(Duration::from_secs(3));
        kill_process(pid, Signal::CONT).expect("it runs");
    });
    upload.write_all(&all[PART..]).expect("sent");
    upload.complete().expect("completed");
    waker.join().expect("no panic");
    assert!(read(&*object).expect("read") == all);
}
