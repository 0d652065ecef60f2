//! The messages between front and manager, over a socket pair: a JSON document a line.
//!
//! The manager's end is its standard input when it starts, since that is the one descriptor that a
//! new process can find by itself. The program's standard input comes as the first message, a byte
//! with a descriptor, and takes its place.

use std::io::{self, BufRead as _, BufReader, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::end::End;

/// Said by the front.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToManager {
    /// Start the program with these signals and standard streams ([`Inherited::words`]).
    ///
    /// [`Inherited::words`]: zfold_run::Inherited::words
    Start([u64; 3]),
    /// Put these processes, which run already, under the limit ([`Running::words`]).
    ///
    /// [`Running::words`]: zfold_run::Running::words
    Attach(Vec<(i32, u64)>),
    /// The front got this signal.
    Signal(i32),
}

/// Said by the manager.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToFront {
    /// The program begins; of processes that ran before: they are under the limit.
    Started,
    /// Something that the person should know.
    Remark(String),
    /// The program has ended.
    Ended(End),
    /// The last process has ended; the report, if one was asked for.
    Done(String),
    /// The run failed; status and line for the person. The last message.
    Failed {
        /// Exit status.
        status: u8,
        /// The error.
        line: String,
    },
}

/// Hands over a descriptor.
pub(super) fn send_file(socket: &UnixStream, file: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    let pushed = control.push(SendAncillaryMessage::ScmRights(&files));
    assert!(pushed, "the space is that of one descriptor");
    let sent = sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a descriptor; it is closed by exec.
pub(super) fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends a message.
pub(super) fn send<T: Serialize>(mut socket: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    // One write, so that messages of several threads do not mix: a line fits the socket's buffer.
    socket.write_all(&line)
}

/// Returns the messages that come, until the other end is closed or sends something else.
pub(super) fn messages<T: DeserializeOwned>(socket: UnixStream) -> impl Iterator<Item = T> {
    let lines = BufReader::new(socket).lines();
    lines.map_while(|line| serde_json::from_str(&line.ok()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_and_messages_arrive_in_order() {
        let (front, manager) = UnixStream::pair().expect("a pair");
        let (reader, writer) = io::pipe().expect("a pipe");
        send_file(&front, writer).expect("sent");
        send(&front, &ToManager::Start([1, u64::MAX, 3])).expect("sent");
        send(&front, &ToManager::Signal(15)).expect("sent");
        drop(front);
        let writer = receive_file(&manager).expect("a descriptor");
        std::fs::File::from(writer).write_all(b"x").expect("written");
        assert_eq!(io::read_to_string(reader).expect("read"), "x");
        let heard: Vec<ToManager> = messages(manager).collect();
        assert_eq!(heard, [ToManager::Start([1, u64::MAX, 3]), ToManager::Signal(15)]);
    }

    #[test]
    fn what_is_no_message_ends_them() {
        let (front, manager) = UnixStream::pair().expect("a pair");
        (&manager)
            .write_all(b"{\"ended\":{\"code\":7}}\nnonsense\n\"started\"\n")
            .expect("written");
        drop(manager);
        let heard: Vec<ToFront> = messages(front).collect();
        assert_eq!(heard, [ToFront::Ended(End::Code(7))]);
    }
}
