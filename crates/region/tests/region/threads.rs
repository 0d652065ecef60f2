//! Faults that threads of the memory resolve: system calls work on any page.

use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::net::UnixDatagram;

use zfold_region::FaultMode;

use super::{MIB, PAGE, read, write};

#[test]
fn system_calls_work_on_missing_pages() {
    let Some(mut region) = super::region(MIB, 2 * MIB, FaultMode::Thread) else { return };
    write(&mut region, 1);
    region.pageout(..).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(region.as_slice::<u8>()).unwrap();
    region.discard(..);
    file.rewind().unwrap();
    file.read_exact(region.as_mut_slice::<u8>()).unwrap();
    region.pageout(..).unwrap();
    read(&region, 1);

    region.pageout(..).unwrap();
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    sender.send(b"datagram").unwrap();
    assert_eq!(receiver.recv(&mut region.as_mut_slice::<u8>()[5 * PAGE..6 * PAGE]).unwrap(), 8);
    assert_eq!(&region.as_slice::<u8>()[5 * PAGE..][..8], b"datagram");
}
