//! Ends in the middle of work: of a client, of the server, and of the server when it was asked to.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use tempfile::tempdir;
use zfold_testing::nbd::Plain as Client;
use zfold_testing::{Random, wait_until};

use crate::looped::{Frontend, Looped};
use crate::server::{Server, page, text};
use crate::tools::{Background, attempt, fio_arguments, run};

/// Writes until it is ended. By threads: the processes of jobs would outlive their parent.
const WITHOUT_END: &str = "--thread --rw=randwrite --bs=4k --time_based --runtime=600";

fn writes(server: &Server) -> u64 {
    server.stat()["disks"][0]["device"]["writes_total"].as_u64().expect("a number")
}

/// A file system whose device goes away gives errors, can be unmounted, and leaves its place to
/// the next one.
fn lose_server(frontend: Frontend) {
    let Some(mut on) = Looped::new(frontend, "256MiB", &["fio", "mkfs.ext4"]) else { return };
    run("mkfs.ext4", &["-q", "-F", &on.device]);
    on.mount("ext4");
    let target = format!("--filename={}", on.at.join("file").display());
    let line = format!("--ioengine=psync --direct=1 --size=64m {WITHOUT_END}");
    let before = writes(on.server());
    let mut writer = Background::start(on.dir.path(), "fio", &fio_arguments(&target, &line));
    wait_until("fio writes", || writes(on.server()) > before + 500);
    on.kill_server();
    wait_until("the writer gets an error", || writer.has_ended());
    let (succeeded, complaint) = writer.ended();
    assert!(!succeeded, "{complaint}");
    let written = attempt("dd", &["if=/dev/zero", &format!("of={}", on.device), "oflag=direct"]);
    assert!(written.is_err(), "the device gives errors");
    on.take_down();

    on.serve(frontend, "256MiB");
    assert_eq!(on.held().0, 0, "nothing of the last one is left");
    on.finish();
}

#[test]
fn a_file_system_survives_the_loss_of_its_server_through_fuse() {
    lose_server(Frontend::Fuse);
}

#[test]
fn a_file_system_survives_the_loss_of_its_server_through_nbd() {
    lose_server(Frontend::Nbdfuse);
}

/// What a writer knows of the pages in its part of the device.
#[derive(Default)]
struct Known {
    /// The last write of each page that was acknowledged.
    acknowledged: HashMap<u64, u32>,
    /// The write that was not, when the server went.
    open: Option<(u64, u32)>,
}

/// Pages of each writer's part.
const PART: u64 = 2048;

/// Writes pages until the server refuses or goes away. No two rounds write the same.
fn write_on(socket: &Path, round: u32, writer: u64, count: &AtomicU64) -> Known {
    let seed = u64::from(round) * 4 + writer;
    let (mut client, mut numbers) = (Client::connect(socket, ""), Random::new(seed));
    let mut known = Known::default();
    for number in 0.. {
        let at = writer * PART + numbers.below(PART);
        let content = (round << 28) + number * 8 + writer as u32 * 2;
        match client.try_write(at * 4096, &page(content)) {
            Ok(Ok(())) => known.acknowledged.insert(at, content),
            Ok(Err(_)) | Err(_) => {
                known.open = Some((at, content));
                break;
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    known
}

#[test]
fn what_was_acknowledged_before_the_end_is_loaded_again() {
    let runtime = tempdir().expect("a directory");
    let file = runtime.path().join("disk.zfs");
    let line = ["--size", "32MiB", "--load", text(&file), "--save", text(&file)];
    let mut expected: HashMap<u64, u32> = HashMap::new();
    for round in 1..=3 {
        let server = Server::start(runtime.path(), &line);
        let (socket, count) = (server.socket(), AtomicU64::new(0));
        let known: Vec<Known> = std::thread::scope(|scope| {
            let start = |writer| {
                let (socket, count) = (&socket, &count);
                scope.spawn(move || write_on(socket, round, writer, count))
            };
            let writers: Vec<_> = (0..4).map(start).collect();
            wait_until("writes", || count.load(Ordering::Relaxed) > 2000);
            server.signal(Signal::TERM);
            writers.into_iter().map(|writer| writer.join().expect("it ends")).collect()
        });
        let (status, said) = server.ended();
        assert_eq!(status, Some(0), "{said:?}");
        expected.extend(known.iter().flat_map(|known| &known.acknowledged));
        println!("round {round}: {} writes, {} pages", count.into_inner(), expected.len());
        check(runtime.path(), &line, &mut expected, &known);
    }
}

/// Compares the saved contents with what is known. A write that was not acknowledged may be there
/// or not, but as a whole.
fn check(runtime: &Path, line: &[&str], expected: &mut HashMap<u64, u32>, known: &[Known]) {
    let server = Server::start(runtime, line);
    let mut client = server.connect("");
    for (at, content) in known.iter().filter_map(|known| known.open) {
        if client.read(at * 4096, 4096) == page(content) {
            expected.insert(at, content);
        }
    }
    for at in 0..4 * PART {
        let there = client.read(at * 4096, 4096);
        let wanted = expected.get(&at).map_or_else(|| vec![0; 4096], |content| page(*content));
        assert!(there == wanted, "page {at}: {:?}", expected.get(&at));
    }
    assert_eq!(server.stop().0, Some(0));
    assert!(fs::metadata(line[3]).is_ok(), "the snapshot is there");
}
