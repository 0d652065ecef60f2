//! The transmission: every command, every way to say no, and clients that misbehave.

mod client;

use std::collections::HashMap;
use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use client::*;
use zfold_disk::nbd::NbdOptions;
use zfold_disk::{Disk, DiskOptions};

/// States of block status.
const DATA: u32 = 0;
const HOLE_AND_ZERO: u32 = 3;

#[test]
fn simple_replies_carry_data_and_errors() {
    let disk = disk(4);
    let mut served = Served::one(&disk);
    let mut client = served.client();
    client.go("");
    let data = bytes(5000, 1);
    assert_eq!(client.write(0, 10, &data), 0);
    let cookie = client.request(READ, 0, 10, 5000);
    assert_eq!(client.reply(), Reply::Simple { cookie, error: 0 });
    assert_eq!(client.take_vec(5000), data);
    assert_eq!(client.write(FUA, 0, &[1]), 0);
    assert_eq!(client.simple(FLUSH, 0, 0, 0), 0);
    assert_eq!(disk.stats().flushes_total, 2, "FUA flushes");
    assert_eq!(client.simple(CACHE, 0, 0, 4096), 0);
    let size = 4 * PAGE;
    for (command, flags, offset, len) in
        [(READ, 0, size, 1), (READ, DF, 0, 1), (BLOCK_STATUS, 0, 0, 1), (99, 0, 0, 0)]
    {
        assert_eq!(client.simple(command, flags, offset, len), EINVAL, "{command}");
    }
}

#[test]
fn holes_travel_as_holes() {
    let disk = disk(1024);
    let mut served = Served::one(&disk);
    let mut client = served.ready();
    assert_eq!(client.write(0, 2 * PAGE, &bytes(4096, 9)), 0);
    let cookie = client.request(READ, 0, 0, 5 * PAGE as u32);
    let chunks: Vec<_> = (0..3).map(|_| client.reply()).collect();
    let kinds = chunks.iter().map(|chunk| match chunk {
        Reply::Chunk { cookie: theirs, done, kind, data } if *theirs == cookie => {
            (*done, *kind, data.len())
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [(false, 2, 12), (false, 1, 8 + 4096), (true, 2, 12)]);
    // A whole chunk if the client wants no pieces.
    client.request(READ, DF, 0, 5 * PAGE as u32);
    let Reply::Chunk { done: true, kind: 1, data, .. } = client.reply() else {
        panic!("one chunk")
    };
    assert_eq!(data.len() as u64, 8 + 5 * PAGE);
    assert_eq!(client.read(0, 5, 0), Ok(vec![]));
}

#[test]
fn a_read_of_many_small_holes_is_whole_and_their_status_is_limited_in_length() {
    let disk = disk(20_000);
    for page in (0..20_000).step_by(2) {
        disk.write(page * PAGE, &bytes(4096, page % 8)).unwrap();
    }
    let mut served = Served::one(&disk);
    let mut client = served.ready();
    let mut expected = vec![0; 1024 * PAGE as usize];
    disk.read(0, &mut expected).unwrap();
    assert_eq!(client.read(0, 0, 1024 * PAGE as u32), Ok(expected));
    let status = client.block_status(0, 0, 20_000 * PAGE as u32);
    assert_eq!(status.len(), 4096);
    assert_eq!(status[..2], [(PAGE as u32, DATA), (PAGE as u32, HOLE_AND_ZERO)]);
}

#[test]
fn trim_and_write_zeroes_leave_zeros() {
    let disk = disk(64);
    let mut served = Served::one(&disk);
    let mut client = served.ready();
    assert_eq!(client.write(0, 0, &bytes(64 * 4096, 3)), 0);
    assert_eq!(client.simple(TRIM, FUA, 0, 16 * PAGE as u32), 0);
    assert_eq!(client.simple(WRITE_ZEROES, FAST_ZERO, 16 * PAGE, 16 * PAGE as u32), 0);
    let freed = disk.stats().notify_free_total;
    assert_eq!((disk.store().len(), freed), (32, 32), "both free their pages");
    let kept = NO_HOLE | FAST_ZERO | FUA;
    assert_eq!(client.simple(WRITE_ZEROES, kept, 32 * PAGE, 16 * PAGE as u32), 0);
    assert_eq!(disk.store().len(), 32, "pages of zeros stay");
    let zeroed = 48 * PAGE as u32;
    assert_eq!(client.read(0, 0, zeroed), Ok(vec![0; zeroed as usize]));
    let status = client.block_status(0, 0, 64 * PAGE as u32);
    assert_eq!(status, [(zeroed, HOLE_AND_ZERO), (16 * PAGE as u32, DATA)]);
    assert_eq!(client.block_status(REQ_ONE, 40 * PAGE, 20 * PAGE as u32).len(), 1);
    assert_eq!(disk.stats().flushes_total, 2);
}

#[test]
fn requests_that_cannot_be_served_name_the_error() {
    let disk = disk(4);
    let mut served = Served::one(&disk);
    let mut client = served.ready();
    let size = 4 * PAGE;
    assert_eq!(client.write(0, size - 1, &[1, 2]), ENOSPC);
    assert_eq!(client.simple(WRITE_ZEROES, 0, size, 1), ENOSPC);
    assert_eq!(client.read(0, size - 1, 2), Err(EINVAL));
    assert_eq!(client.read(DF, u64::MAX, 2), Err(EINVAL));
    assert_eq!(client.read(0, size + 1, 0), Err(EINVAL));
    assert_eq!(client.simple(READ, 0, 0, u32::MAX), EINVAL);
    for (command, flags, offset, len) in [
        (TRIM, 0, size, 1),
        (TRIM, 0, u64::MAX, 100),
        (CACHE, 0, 1, size as u32),
        (CACHE, 0, u64::MAX, 1),
        (BLOCK_STATUS, 0, 0, size as u32 + 1),
        (BLOCK_STATUS, 0, 0, 0),
        (BLOCK_STATUS, DF, 0, 1),
        (TRIM, NO_HOLE, 0, 1),
        (FLUSH, REQ_ONE, 0, 0),
        (WRITE_ZEROES, 1 << 15, 0, 1),
        (8, 0, 0, 0),
        (u16::MAX, 0, 0, 0),
    ] {
        assert_eq!(client.simple(command, flags, offset, len), EINVAL, "{command} {flags}");
    }
    assert_eq!(client.write(DF, 0, &[1; 100]), EINVAL, "and its payload is not taken for requests");
    assert!(disk.store().is_empty());
    assert_eq!(client.write(0, 0, &[1]), 0);
    drop(client);
    assert_eq!(served.finish().errors_total, 19);
}

#[test]
fn a_read_only_disk_refuses_changes() {
    let disk = disk(4);
    disk.write(0, &[5; 100]).unwrap();
    let options = DiskOptions::new(4 * PAGE).with_read_only(true);
    let disk = Arc::new(Disk::new(Arc::clone(disk.store()), &options).unwrap());
    let mut served = Served::one(&disk);
    let mut client = served.client();
    client.structured();
    assert_eq!(client.go("").1, 0x58f);
    assert_eq!(client.write(0, 0, &[1; 50]), EPERM);
    assert_eq!(client.simple(TRIM, 0, 0, 4096), EPERM);
    assert_eq!(client.simple(WRITE_ZEROES, 0, 0, 4096), EPERM);
    assert_eq!(client.read(0, 0, 100), Ok(vec![5; 100]));
}

#[test]
fn a_read_beyond_the_limit_is_refused_and_a_write_ends_the_connection() {
    let disk = disk(64);
    let options = NbdOptions::default().with_max_request_bytes(64 << 10);
    let mut served = Served::new(&disk, options);
    let mut client = served.ready();
    assert_eq!(client.read(0, 0, (64 << 10) + 1), Err(EINVAL));
    assert_eq!(client.write(0, 0, &bytes(64 << 10, 1)), 0);
    for len in [(64 << 10) + 1, u32::MAX] {
        let mut client = served.ready();
        client.request(WRITE, 0, 0, len);
        client.assert_closed();
    }
}

#[test]
fn bad_magic_ends_this_connection_and_no_other() {
    let disk = disk(4);
    let mut served = Served::one(&disk);
    let (mut bad, mut good) = (served.ready(), served.ready());
    let cookie = bad.request(FLUSH, 0, 0, 0);
    bad.send(&[0xAB; 28]);
    assert_eq!(bad.outcome(cookie), 0, "what came before is answered");
    bad.assert_closed();
    assert_eq!(good.write(0, 0, &[1]), 0);
}

#[test]
fn a_half_closed_client_gets_all_its_replies() {
    let disk = disk(256);
    let mut served = Served::one(&disk);
    let mut client = served.ready();
    let mut sent = Vec::new();
    for n in 0..100u64 {
        sent.extend(request(WRITE, 0, n, n * PAGE, 4096));
        sent.extend(bytes(4096, n));
    }
    client.send(&sent);
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut cookies: Vec<_> = (0..100)
        .map(|_| match client.reply() {
            Reply::Simple { cookie, error: 0 } => cookie,
            other => panic!("{other:?}"),
        })
        .collect();
    client.assert_closed();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_client_that_does_not_read_blocks_itself_only() {
    let disk = disk(1024);
    disk.write(0, &bytes(4 << 20, 5)).unwrap();
    let mut served = Served::one(&disk);
    let mut slow = served.ready();
    // Far more than sockets and budget hold.
    slow.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut sent = 0;
    for n in 0..1_000_000u64 {
        use std::io::Write;
        if slow.stream.write_all(&request(READ, 0, n, 0, 1 << 20)).is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 1_000_000, "the server does not take requests without end");
    let mut other = served.ready();
    for n in 0..50 {
        assert_eq!(other.write(0, n * PAGE, &bytes(4096, n)), 0);
    }
    // It may come to its senses.
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < 40 << 20 {
        received += slow.stream.read(&mut buffer).unwrap();
    }
}

/// Options of a server that holds no large request whole.
fn in_pieces() -> NbdOptions {
    NbdOptions::default().with_max_held_bytes(0)
}

#[test]
fn large_requests_in_pieces_are_like_any_other() {
    let disk = disk(4096);
    let mut served = Served::new(&disk, in_pieces());
    let mut client = served.ready();
    // Holes in front, in the middle and at the end of what is read.
    for (offset, len) in [(5_000u64, 3 << 20), (4 << 20, 1 << 20), ((6 << 20) + 1, 300_000)] {
        let data = bytes(len, offset);
        assert_eq!(client.write(FUA, offset, &data), 0);
        for flags in [0, DF] {
            assert_eq!(client.read(flags, offset, len as u32), Ok(data.clone()), "{offset}");
        }
    }
    assert_eq!(disk.stats().flushes_total, 3, "each write that asks for it is followed by one");
    let mut all = vec![0; 8 << 20];
    disk.read(0, &mut all).unwrap();
    for flags in [0, DF] {
        assert_eq!(client.read(flags, 0, 8 << 20), Ok(all.clone()));
    }
    // Small ones besides, before and behind.
    let mut wanted = HashMap::new();
    for n in 0..20u64 {
        let len = if n % 5 == 2 { 1 << 20 } else { 4096 };
        let part = &all[(n * PAGE) as usize..][..len];
        wanted.insert(client.request(READ, DF, n * PAGE, len as u32), part);
    }
    while !wanted.is_empty() {
        let Reply::Chunk { cookie, done: true, kind: 1, data } = client.reply() else {
            panic!("one chunk of data is wanted");
        };
        assert!(wanted.remove(&cookie).expect("a request") == &data[8..]);
    }
    let size = 4096 * PAGE;
    assert_eq!(client.write(0, size - 4096, &bytes(1 << 20, 1)), ENOSPC);
    assert_eq!(client.read(0, size - 4096, 1 << 20), Err(EINVAL));
    assert_eq!(client.read(0, u64::MAX - 10, 1 << 20), Err(EINVAL));
    assert_eq!(client.read(0, size - 4096, 4096), Ok(vec![0; 4096]), "nothing was written");
    assert_eq!(client.write(0, 0, &bytes(48 << 20, 3)), ENOSPC);
    drop(client);

    let mut simple = served.client();
    simple.go("");
    let cookie = simple.request(READ, 0, 0, 8 << 20);
    assert_eq!(simple.reply(), Reply::Simple { cookie, error: 0 });
    assert!(simple.take_vec(8 << 20) == all);
    assert_eq!(simple.simple(READ, 0, size - 1, 1 << 20), EINVAL);
}

#[test]
fn clients_that_hold_all_that_is_shared_keep_nobody_waiting() {
    let disk = disk(4096);
    disk.write(0, &bytes(4 << 20, 5)).unwrap();
    let options = NbdOptions::default().with_max_held_bytes(4 << 20);
    let mut served = Served::new(&disk, options);
    // One does not send what it announced, one does not read what it asked for.
    let (mut silent, mut deaf) = (served.ready(), served.ready());
    silent.send(&request(WRITE, 0, 1, 8 << 20, 2 << 20));
    for n in 0..20 {
        deaf.send(&request(READ, 0, n, 0, 1 << 20));
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut other = served.ready();
    let data = bytes(6 << 20, 7);
    assert_eq!(other.write(0, 4 << 20, &data), 0);
    assert_eq!(other.read(0, 4 << 20, 6 << 20), Ok(data));
    drop((silent, deaf, other));
    // What they held is there again.
    assert_eq!(served.ready().read(0, 0, 4 << 20), Ok(bytes(4 << 20, 5)));
}

#[test]
fn many_small_requests_without_reading_are_limited_as_well() {
    let disk = disk(16);
    let mut served = Served::one(&disk);
    let mut slow = served.ready();
    slow.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let flushes = request(FLUSH, 0, 1, 0, 0).repeat(10_000);
    let stuck = (0..1000).any(|_| std::io::Write::write_all(&mut slow.stream, &flushes).is_err());
    assert!(stuck, "ten million replies are too many to keep");
}

#[test]
fn shutdown_answers_what_was_received_and_closes() {
    let disk = disk(64);
    let mut served = Served::one(&disk);
    let mut busy = served.ready();
    let mut greeted = served.client();
    assert_eq!(busy.write(0, 0, &[1; 100]), 0);
    assert!(served.server.shutdown(PATIENCE));
    busy.assert_closed();
    greeted.assert_closed();
    Client { stream: served.connect(), next_cookie: 1 }.assert_closed();
}

#[test]
fn shutdown_does_not_wait_for_ever() {
    let disk = disk(1024);
    disk.write(0, &bytes(4 << 20, 5)).unwrap();
    let mut served = Served::one(&disk);
    let mut deaf = served.ready();
    for _ in 0..32 {
        deaf.request(READ, 0, 0, 4 << 20);
    }
    deaf.take::<8>();
    assert!(!served.server.shutdown(Duration::from_millis(50)));
}
