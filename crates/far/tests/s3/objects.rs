//! Objects that are written and read as streams: complete or not there.

use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use zfold_far::Object;
use zfold_testing::random::noise as bytes;
use zfold_testing::s3::{S3, ready};

use crate::object;

/// Length of a part.
const PART: usize = 16 << 20;

fn write(object: &dyn Object, bytes: &[u8]) -> io::Result<()> {
    let mut upload = object.write()?;
    upload.write_all(bytes)?;
    upload.complete()
}

fn read(object: &dyn Object) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    object.read()?.read_to_end(&mut out).map(|_| out)
}

#[test]
fn what_was_written_is_read_whatever_its_length() {
    zfold_testing::needs!(ready());
    let server = S3::start();
    let object = object(&server, "folder/disk.zfs");
    assert_eq!(object.size().expect("asked"), None);
    assert_eq!(read(&*object).expect_err("it is not there").kind(), io::ErrorKind::NotFound);
    object.try_write().expect("it can be written");
    assert_eq!((server.keys(""), server.uploads()), (Vec::new(), 0), "no trace");
    for len in [1, PART, PART + 1, 2 * PART + 4567] {
        let all = bytes(len as u64, len);
        write(&*object, &all).expect("written");
        assert_eq!(object.size().expect("asked"), Some(len as u64));
        assert!(read(&*object).expect("read") == all, "{len}");
    }
    assert_eq!((server.keys(""), server.uploads()), (vec!["folder/disk.zfs".to_owned()], 0));
}

#[test]
fn what_is_given_up_leaves_the_object_of_before_and_nothing_else() {
    zfold_testing::needs!(ready());
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let old = bytes(1, 100_000);
    write(&*object, &old).expect("written");
    let mut upload = object.write().expect("begun");
    upload.write_all(&bytes(2, 2 * PART + 99)).expect("sent");
    assert!(read(&*object).expect("read") == old, "the object of before is there");
    drop(upload);
    assert!(read(&*object).expect("read") == old);
    assert_eq!((server.keys(""), server.uploads()), (vec!["disk.zfs".to_owned()], 0));
}

#[test]
fn an_object_that_is_replaced_is_not_read_half() {
    zfold_testing::needs!(ready());
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
    zfold_testing::needs!(ready());
    let server = S3::start();
    let object = object(&server, "disk.zfs");
    let all = bytes(8, 3 * PART);
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
