//! Any bytes from a client, as they are or in the form of options and requests: the server answers
//! or hangs up, and comes to an end.

#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use zfold_disk::nbd::{NbdOptions, NbdServer};
use zfold_disk::{Disk, DiskOptions, SectorSize};
use zfold_pool::{Allocator, PoolOptions};
use zfold_store::{CodecKind, Store, StoreOptions};

const PAGES: u64 = 256;

/// One server for all inputs: what a client leaves behind must not harm the next.
static SERVER: LazyLock<Arc<NbdServer>> = LazyLock::new(|| {
    let pool = zfold_pool::create("fuzz", &PoolOptions::new(Allocator::Zsmalloc));
    let options = StoreOptions::new(PAGES, CodecKind::Lz4.into());
    let store = Store::new(pool.expect("the options are in range"), &options);
    let size = PAGES * 4096;
    let options = DiskOptions::new(size).with_sector(SectorSize::B512);
    let disk = Disk::new(Arc::new(store.expect("the options are in range")), &options);
    let disk = Arc::new(disk.expect("the size is in range"));
    let options = NbdOptions::default()
        .with_name("a")
        .with_description("fuzzed")
        .with_max_request_bytes(128 << 10)
        .with_handshake_timeout(Duration::from_secs(1));
    NbdServer::new(disk, options)
});

/// Client flags and the options that lead to the transmission with all that can be agreed on.
const TO_TRANSMISSION: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0\
    IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation\
    IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";

/// Returns the bytes as options with their magic and length, eight bytes of data each.
fn options(bytes: &[u8]) -> Vec<u8> {
    let option = |part: &[u8]| {
        let data = &part[1..];
        let len = (data.len() as u32).to_be_bytes();
        [&b"IHAVEOPT\0\0\0"[..], &part[..1], &len, data].concat()
    };
    bytes.chunks(9).flat_map(option).collect()
}

/// Returns the bytes as requests in and beside the device, with payloads.
fn requests(bytes: &[u8]) -> Vec<u8> {
    let request = |&[flags, command, high, low, long, short]: &[u8; 6]| {
        let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, flags, 0, command];
        head.extend([0; 8 + 5]);
        head.extend([high, low, short]);
        let len = u16::from_be_bytes([long, short]);
        head.extend([0, 0]);
        head.extend(len.to_be_bytes());
        head.resize(head.len() + if command == 1 { usize::from(len) } else { 0 }, high);
        head
    };
    bytes.as_chunks().0.iter().flat_map(request).collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, bytes)) = data.split_first() else { return };
    let bytes = &match how & 5 {
        4 => [b"\0\0\0\x03", &options(bytes)[..]].concat(),
        5 => requests(bytes),
        _ => bytes.to_vec(),
    };
    let (mut ours, theirs) = UnixStream::pair().expect("sockets are to be had");
    let mut answers = ours.try_clone().expect("descriptors are to be had");
    let serving = std::thread::spawn(|| SERVER.serve_connection(theirs));
    let reading = std::thread::spawn(move || {
        // A client that leaves early, or takes all.
        let wanted = if how & 2 == 0 { u64::MAX } else { 100 };
        let _ = std::io::copy(&mut (&mut answers).take(wanted), &mut std::io::sink());
        let _ = answers.shutdown(Shutdown::Both);
    });
    // The server may hang up before it has heard everything.
    let skipped = if how & 1 == 0 { &[][..] } else { TO_TRANSMISSION };
    let _ = ours.write_all(skipped).and_then(|()| ours.write_all(bytes));
    let _ = ours.shutdown(Shutdown::Write);
    serving.join().expect("the server does not panic");
    drop(ours);
    reading.join().expect("the client does not panic");
    assert_eq!(SERVER.stats().connections, 0);
});
