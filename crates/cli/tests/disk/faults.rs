//! Files that fail under a running disk, by errors or a quota that is used up, and a server that
//! stands still.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;
use zfold_testing::Random;
use zfold_testing::nbd::Plain as Client;
use zfold_testing::wait::{at_once, beside};

use crate::common::assert_line;
use crate::faulty::{FAULTS, Mounted};
use crate::server::{Server, noise, page, text, zfold};

fn check(client: &mut Client, pages: u32) {
    for number in 0..pages {
        assert_eq!(client.read(u64::from(number) * 4096, 4096), page(number), "page {number}");
    }
}

#[test]
fn a_backing_file_that_fails_loses_nothing_that_was_acknowledged() {
    let Some(on) = Mounted::new() else { return };
    let runtime = tempdir().expect("a folder");
    let backing = on.path("cold");
    let limits = ["--size", "16MiB", "--limit", "2MiB", "--backing", text(&backing)];
    let server = Server::start(runtime.path(), &limits);
    let mut client = server.connect("");
    let written = 2048;
    for number in 0..written {
        client.write(u64::from(number) * 4096, &page(number)).expect("there is room");
    }
    for fault in FAULTS {
        on.faults.write.store(fault.raw_os_error(), Ordering::SeqCst);
        // What does not compress needs room at once, which only the file has.
        let at = |number: u32| u64::from(written + number) * 4096;
        let refused = (0..1024).find(|&number| client.write(at(number), &noise(number)).is_err());
        let refused = refused.unwrap_or_else(|| panic!("{fault}: all found room"));
        for number in 0..refused {
            assert_eq!(client.read(at(number), 4096), noise(number), "{fault}");
        }
        on.faults.end();
        client.write(at(refused), &noise(refused)).expect("there is room again");
        assert_eq!(client.read(at(refused), 4096), noise(refused), "{fault}");
        check(&mut client, written);
        client.trim(at(0), 1024 * 4096);
    }
    // A read that fails is an error of that read alone, and passes.
    on.faults.read.store(Errno::IO.raw_os_error(), Ordering::SeqCst);
    let failed = (0..written).filter(|&n| client.try_read(u64::from(n) * 4096, 4096).is_err());
    assert!(failed.count() > 0, "pages are on the file");
    on.faults.end();
    check(&mut client, written);
    drop(client);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_the_one_before() {
    let Some(on) = Mounted::new() else { return };
    let runtime = tempdir().expect("a folder");
    let saved = on.path("saved");
    let size = ["--size", "4MiB"];
    let server = Server::start(runtime.path(), &size);
    let mut client = server.connect("");
    for number in 0..512 {
        client.write(u64::from(number) * 4096, &page(number)).expect("written");
    }
    server.ask(&["save", text(&saved)]);
    client.write(0, &noise(0)).expect("written");
    let faults = &on.faults;
    for fault in FAULTS {
        for place in [&faults.write, &faults.sync, &faults.rename] {
            place.store(fault.raw_os_error(), Ordering::SeqCst);
            let output = server.ctl(&["save", text(&saved)]);
            assert_line(&output, 1, &["saved"]);
            faults.end();
            assert_eq!(client.read(0, 4096), noise(0));
            let part = on.path(&format!("saved.part{}", server.pid()));
            assert!(!part.exists(), "{fault}: {}", part.display());
        }
    }
    drop(client);
    assert_eq!(server.stop().0, Some(0));

    let load = [&size[..], &["--load", text(&saved)]].concat();
    faults.read.store(Errno::IO.raw_os_error(), Ordering::SeqCst);
    let line = [&["disk", "--no-mlock"], &load[..]].concat();
    let output = zfold(runtime.path(), &line).output().expect("the program starts");
    assert_line(&output, 1, &["cannot load", "give another snapshot"]);
    faults.end();
    // The one before the failures.
    let server = Server::start(runtime.path(), &load);
    check(&mut server.connect(""), 512);
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_server_that_is_stopped_again_and_again_serves_on() {
    let runtime = tempdir().expect("a folder");
    let server = Server::start(runtime.path(), &["--size", "16MiB"]);
    let pid = Pid::from_raw(server.pid() as i32).expect("a process");
    let mut random = Random::new(1);
    let stop = || {
        for signal in [Signal::STOP, Signal::CONT] {
            kill_process(pid, signal).expect("it runs");
            thread::sleep(Duration::from_micros(random.below(8000)));
        }
    };
    let clients: Vec<_> = (0..4).map(|_| server.connect("")).collect();
    let work = |(part, mut client): (u32, Client)| {
        for round in 0..300 {
            let at = u64::from(part) << 22 | u64::from(round % 100 * 4096);
            client.write(at, &page(part * 1000 + round)).expect("written");
            assert_eq!(client.read(at, 4096), page(part * 1000 + round), "{part} {round}");
        }
    };
    beside(stop, || at_once((0..).zip(clients), work));
    assert_eq!(server.stop().0, Some(0));
}
