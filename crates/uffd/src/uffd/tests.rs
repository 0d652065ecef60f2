//! Reading messages, and what is taken for a descriptor.

use super::*;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn a_read_that_must_not_wait_does_not_though_the_descriptor_blocks() {
    let Ok(uffd) = Uffd::open(Faults::UserOnly) else {
        return zfold_testing::skip("no userfaultfd");
    };
    uffd.handshake(Features::DISCARDS).expect("agreed");
    rustix::io::ioctl_fionbio(&uffd.fd, false).expect("set");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(uffd.read_now(&mut [0; 16 * MESSAGE], &mut Vec::new())));
    let read = told.recv_timeout(Duration::from_secs(60)).expect("it waits");
    assert_eq!(read.expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
}

/// As a program would have to forge it that wants a descriptor of its reader's closed.
#[test]
fn what_reads_like_a_userfaultfd_is_not_taken_for_one() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut forged = [0; MESSAGE];
    forged[0] = raw::UFFD_EVENT_FORK as u8;
    rustix::io::write(&writer, &forged).expect("written");
    let number = reader.as_raw_fd();
    let given_back = Uffd::from_fd(reader.into()).expect_err("a pipe");
    assert_eq!(given_back.as_raw_fd(), number);
    if let Ok(uffd) = Uffd::open(Faults::UserOnly) {
        Uffd::from_fd(uffd.duplicate().expect("a copy")).expect("a userfaultfd");
    }
}
