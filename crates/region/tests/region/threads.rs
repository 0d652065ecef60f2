//! Faults that threads of the memory resolve: system calls work on any page.

use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixDatagram;

use zfold_region::{FaultMode, Region};

use super::{MIB, PAGE, Random, at_once, expect, fill};

/// A region with threads, unless that is not permitted here.
fn region(bytes: usize, limit: usize) -> Option<Region> {
    super::region(bytes, limit, FaultMode::Thread)
}

#[test]
fn system_calls_work_on_missing_pages() {
    let Some(mut region) = region(MIB, 2 * MIB) else { return };
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
    region.pageout(..).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(region.as_slice::<u8>()).unwrap();
    region.discard(..);
    file.rewind().unwrap();
    file.read_exact(region.as_mut_slice::<u8>()).unwrap();
    region.pageout(..).unwrap();
    (0..).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));

    region.pageout(..).unwrap();
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    sender.send(b"datagram").unwrap();
    assert_eq!(receiver.recv(&mut region.as_mut_slice::<u8>()[5 * PAGE..6 * PAGE]).unwrap(), 8);
    assert_eq!(&region.as_slice::<u8>()[5 * PAGE..][..8], b"datagram");
}

#[test]
fn threads_under_a_small_limit_lose_nothing() {
    let Some(mut region) = region(4 * MIB, MIB) else { return };
    at_once((1..).zip(region.as_mut_slice::<u8>().chunks_mut(MIB)), |(seed, part)| {
        let mut random = Random::new(seed);
        (0..).zip(part.chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, seed));
        for _ in 0..1000 {
            let n = random.below(256);
            expect(&part[n as usize * PAGE..][..PAGE], n, seed);
        }
    });
    assert!(region.stats().resident_pages <= 256);
}
