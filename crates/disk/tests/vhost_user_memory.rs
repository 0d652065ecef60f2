//! Guests whose memory is not what their monitor says, or goes away while it is in use.
//!
//! - The guest alone loses its connection: another disk of the process goes on, and so does the
//!   socket.
//! - What was on the disk stays there.
//! - Other memory that goes away ends the process, as before.

mod common;
mod monitor;

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;

use monitor::{Guest, MEMORY, MIB, REQUEST, Server, serve};
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserHeaderFlag;
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use zfold_testing::Random;

/// A server whose disk has `data`, with a guest.
fn serve_with(data: &[u8]) -> (Server, Guest) {
    let server = serve();
    let mut guest = Guest::connect(&server.socket);
    assert_eq!(guest.request(VIRTIO_BLK_T_OUT, 0, data).0, 0);
    (server, guest)
}

fn assert_has(guest: &mut Guest, data: &[u8]) {
    let (status, back) = guest.request(VIRTIO_BLK_T_IN, 0, &vec![0; data.len()]);
    assert_eq!(status, 0);
    assert!(back == data);
}

#[test]
fn regions_beyond_the_end_of_their_file_are_refused() {
    let data = Random::new(1).half_noise(64 << 10);
    let (_other, mut neighbour) = serve_with(&data);
    let (server, first) = serve_with(&data);
    drop(first);
    for (size, offset) in
        [(2 * MEMORY, 0), (MEMORY + 1, 0), (MEMORY, 4096), (4096, MEMORY), (4096, 1 << 62)]
    {
        // Of one that begins, and of one that runs.
        for begin in [Guest::shake_hands, Guest::connect] {
            let guest = begin(&server.socket);
            guest.monitor.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            let mut region = guest.region();
            (region.memory_size, region.mmap_offset) = (size, offset);
            assert!(guest.monitor.set_mem_table(&[region]).is_err(), "{size} bytes at {offset}");
            assert!(guest.monitor.get_features().is_err(), "the server has hung up");
        }
        assert_has(&mut neighbour, &data);
        assert_has(&mut Guest::connect(&server.socket), &data);
    }
    // All of the file but its first page, and its last one alone.
    for (size, offset) in [(MEMORY - 4096, 4096), (4096, MEMORY - 4096)] {
        let guest = Guest::shake_hands(&server.socket);
        guest.monitor.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let mut region = guest.region();
        (region.memory_size, region.mmap_offset) = (size, offset);
        guest.monitor.set_mem_table(&[region]).unwrap();
    }
}

#[test]
fn a_guest_whose_memory_shrinks_loses_its_connection_and_nobody_else_does() {
    let data = Random::new(3).half_noise(64 << 10);
    let (_other, mut neighbour) = serve_with(&data);
    let (server, first) = serve_with(&data);
    drop(first);
    // All goes, the queue too; the request but not the queue; the second half of the data.
    for left in [0, MIB, REQUEST + (32 << 10)] {
        let mut guest = Guest::connect(&server.socket);
        assert_has(&mut guest, &data);
        guest.prepare(VIRTIO_BLK_T_OUT, 0, &vec![0xEE; data.len()]);
        guest.offer(0);
        guest.file().set_len(left).unwrap();
        guest.wait_for_the_end();
        assert_has(&mut neighbour, &data);
        drop(guest);
        // The data of a write came in one piece, or not at all.
        assert_has(&mut Guest::connect(&server.socket), &data);
    }
}

#[test]
fn memory_may_shrink_at_any_moment_of_a_request() {
    let data = Random::new(4).half_noise(2 << 20);
    let (_other, mut neighbour) = serve_with(&data);
    let server = serve();
    for round in 0..24_u64 {
        let mut guest = Guest::connect(&server.socket);
        let kind = if round % 2 == 0 { VIRTIO_BLK_T_IN } else { VIRTIO_BLK_T_OUT };
        guest.prepare(kind, 0, &data);
        (0..8).for_each(|_| guest.offer(0));
        let left = round % 3 * MIB;
        let file = guest.file().try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| guest.kick.write(1).unwrap());
            scope.spawn(|| file.set_len(left).unwrap());
        });
        if left > 0 {
            // All may have been served before.
            guest.offer(0);
        }
        guest.wait_for_the_end();
    }
    assert_has(&mut neighbour, &data);
}

/// The variable that makes the next test the program that it looks at.
const VICTIM: &str = "ZFOLD_TEST_OTHER_MEMORY";

#[test]
fn other_memory_that_goes_away_ends_the_process() {
    if env::var_os(VICTIM).is_some() {
        // With the handler, which comes with the first guest.
        let (_server, _guest) = serve_with(&[1; 512]);
        let file = tempfile::tempfile().unwrap();
        file.set_len(MIB).unwrap();
        let range = FileOffset::new(file.try_clone().unwrap(), 0);
        let range = (GuestAddress(0), MIB as usize, Some(range));
        let memory = GuestMemoryMmap::<()>::from_ranges_with_files([range]).unwrap();
        file.set_len(0).unwrap();
        let zero: u8 = memory.read_obj(GuestAddress(0)).unwrap();
        panic!("{zero} where nothing is");
    }
    let name = "other_memory_that_goes_away_ends_the_process";
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name])
        .env(VICTIM, "1")
        .output()
        .unwrap();
    let sigbus = rustix::process::Signal::BUS.as_raw();
    assert_eq!(output.status.signal(), Some(sigbus), "{output:?}");
}
