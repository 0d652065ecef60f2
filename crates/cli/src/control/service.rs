//! Small services beside the frontends: a thread accepts, and each connection has one of its own.
//!
//! - V1: a client takes one of a fixed number of places. If none is free, one that says nothing
//!   gives way ([`super::places`]); if all are being served, the newcomer is hung up on.
//! - V2: a client has so long to say something and to take a part of an answer, and no longer; a
//!   whole request and a whole answer take at most twice as long, however small their parts.
//! - V3: the threads are never waited for: they hold nothing that the end of the process would
//!   leave behind but the socket's file, which [`Service`] removes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use zfold_disk::nbd::SocketFile;
use zfold_pool::{Lock, sound};

use super::places::Places;

/// Wait after a failed `accept`, which is for want of descriptors or memory.
const BREATH: Duration = Duration::from_millis(100);

/// Bytes of an answer that are sent at a time: for more, a Unix socket waits more than once.
const PIECE: usize = 16 << 10;

/// A connection.
pub(crate) trait Stream: Read + Write + Send {
    /// A whole request has come; returns whether it may be carried out: not if the client's place
    /// is another's by now.
    fn serve(&mut self) -> bool;
    /// The client's turn has come: to take an answer, and to ask again.
    fn wait(&mut self);
}

/// The bounds that a service sets its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Connections at a time.
    pub(crate) places: usize,
    /// How long a client may send nothing, or not take an answer; and after how long a request or
    /// an answer that goes on is broken off.
    pub(crate) patience: Duration,
}

/// A service at work. Dropping it removes the file of its socket.
#[derive(Debug)]
pub(crate) struct Service {
    /// Removed when this is dropped; the thread that accepts ends with the process only.
    _file: Option<SocketFile>,
}

impl Service {
    /// Has `serve` talk to each client of a socket, whose file the service removes.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        (listener, file): (OwnedFd, Option<SocketFile>),
        terms: Terms,
        serve: impl Fn(&mut dyn Stream) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let places = Lock::new(Places::new(terms.places));
        let (room, serve) = (Arc::new(Room { places, left: Condvar::new() }), Arc::new(serve));
        let accepting = move || {
            loop {
                room.wait();
                let Ok(socket) = accept(&listener, terms.patience) else {
                    thread::sleep(BREATH);
                    continue;
                };
                let Some(mut client) = Client::enter(&room, socket) else { continue };
                let serve = Arc::clone(&serve);
                // A thread that cannot be started hangs up, and gives its place back.
                let _ = thread::Builder::new()
                    .name("zfold-service".to_owned())
                    .spawn(move || serve(&mut client));
            }
        };
        thread::Builder::new().name("zfold-accept".to_owned()).spawn(accepting)?;
        Ok(Self { _file: file })
    }
}

/// Where the clients of a service are.
struct Room {
    places: Lock<Places<Arc<File>>>,
    /// Signalled when one has left.
    left: Condvar,
}

impl Room {
    /// Waits until somebody may be let in: those that gave way leave at once.
    fn wait(&self) {
        let places = self.places.lock();
        drop(sound(self.left.wait_while(places, |places| places.is_crowded())));
    }
}

/// A client that has a place.
struct Client {
    socket: Arc<File>,
    id: u64,
    room: Arc<Room>,
}

impl Client {
    /// Takes a place for a client; `None` if there is none.
    fn enter(room: &Arc<Room>, socket: File) -> Option<Self> {
        let socket = Arc::new(socket);
        let (id, gave_way) = room.places.lock().enter(Arc::clone(&socket))?;
        if let Some(other) = gave_way {
            // Its thread, which waits for it, finds nothing more. It may have left by itself.
            let _ = shutdown(&other, Shutdown::Both);
        }
        Some(Self { socket, id, room: Arc::clone(room) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.room.places.lock().leave(self.id);
        self.room.left.notify_all();
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.socket).read(into)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Client {
    fn serve(&mut self) -> bool {
        self.room.places.lock().serve(self.id)
    }

    fn wait(&mut self) {
        self.room.places.lock().wait(self.id);
    }
}

/// Accepts a client, who is waited for at most so long at a time.
fn accept(listener: &OwnedFd, patience: Duration) -> io::Result<File> {
    let stream = accept_with(listener, SocketFlags::CLOEXEC)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&stream, timeout, Some(patience))?;
    }
    Ok(File::from(stream))
}

/// A client's messages, each with an end mark.
pub(crate) struct Messages<'a> {
    stream: &'a mut dyn Stream,
    end: &'static [u8],
    len_max: usize,
    patience: Duration,
    /// Received bytes that were not taken yet.
    text: Vec<u8>,
}

impl<'a> Messages<'a> {
    /// Returns the messages on `stream` that end in `end` and have about `len_max` bytes at most,
    /// from a client with whom a service of these terms talks.
    pub(crate) fn new(
        stream: &'a mut dyn Stream,
        end: &'static [u8],
        len_max: usize,
        terms: Terms,
    ) -> Self {
        Self { stream, end, len_max, patience: terms.patience, text: Vec::new() }
    }

    /// Returns the next message with its end mark; `None` if the client leaves, or gives way,
    /// before.
    ///
    /// # Errors
    /// The stream's, `InvalidData` for a message that is too long, or `TimedOut` for one that takes
    /// too long.
    pub(crate) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (mut looked, mut chunk, from) = (0, [0; 4096], Instant::now());
        loop {
            let windows = self.text[looked..].windows(self.end.len());
            if let Some(at) = windows.clone().position(|window| window == self.end) {
                let rest = self.text.split_off(looked + at + self.end.len());
                let message = std::mem::replace(&mut self.text, rest);
                return Ok(self.stream.serve().then_some(message));
            }
            looked += windows.len();
            if self.text.len() > self.len_max {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.in_time(from)?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(len) => self.text.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// The stream's, or `TimedOut` if the client takes it too slowly.
    pub(crate) fn answer(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let from = Instant::now();
        self.stream.wait();
        while !bytes.is_empty() {
            match self.stream.write(&bytes[..bytes.len().min(PIECE)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.in_time(from)?;
        }
        Ok(())
    }

    /// Fails once what began at `from` has taken too long (V2).
    fn in_time(&self, from: Instant) -> io::Result<()> {
        match from.elapsed() {
            taken if taken > self.patience => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::os::unix::net::UnixStream;

    impl Stream for Cursor<Vec<u8>> {
        fn serve(&mut self) -> bool {
            true
        }

        fn wait(&mut self) {}
    }

    fn terms(places: usize) -> Terms {
        Terms { places, patience: Duration::from_secs(20) }
    }

    fn bound(path: &std::path::Path) -> (OwnedFd, Option<SocketFile>) {
        let address = zfold_disk::nbd::Address::Unix(path.to_owned());
        zfold_disk::nbd::Listener::bind(&address).expect("bound").into_parts()
    }

    /// A service whose clients say a line each, with an impatient `patience`.
    fn lines(path: &std::path::Path, patience: Duration, reply: usize) -> Service {
        let terms = Terms { places: 1, patience };
        Service::start(bound(path), terms, move |stream| {
            let mut messages = Messages::new(stream, b"\n", 64 << 10, terms);
            if let Ok(Some(_)) = messages.next() {
                let _ = messages.answer(&vec![b'x'; reply]);
            }
        })
        .expect("started")
    }

    /// It says a byte now and then, so that it is never silent for long, and never done either: it
    /// kept its place for as long as it liked.
    #[test]
    fn a_client_that_says_its_request_in_drops_is_hung_up_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let _service = lines(&path, Duration::from_millis(500), 1);
        let mut slow = UnixStream::connect(&path).expect("connected");
        let drops = (0..1000).take_while(|_| {
            thread::sleep(Duration::from_millis(50));
            slow.write_all(b"x").is_ok()
        });
        assert!(drops.count() < 1000, "after 50 s it still has its place");
    }

    #[test]
    fn a_client_that_takes_its_answer_in_drops_is_hung_up_on() {
        const ANSWER: usize = 4 << 20;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let _service = lines(&path, Duration::from_millis(500), ANSWER);
        let mut slow = UnixStream::connect(&path).expect("connected");
        slow.write_all(b"x\n").expect("sent");
        let (mut got, mut part) = (0, vec![0; 32 << 10]);
        while let Ok(len @ 1..) = slow.read(&mut part) {
            got += len;
            thread::sleep(Duration::from_millis(50));
        }
        assert!(got < ANSWER, "it has got all of it, in over 6 s");
    }

    #[test]
    fn messages_end_at_their_mark_at_the_limit_or_with_the_stream() {
        let all = |text: &[u8], len_max| {
            let mut stream = Cursor::new(text.to_vec());
            let mut messages = Messages::new(&mut stream, b"\r\n", len_max, terms(1));
            let mut all = Vec::new();
            loop {
                match messages.next() {
                    Ok(Some(message)) => all.push(message),
                    end => return (all, end.is_ok()),
                }
            }
        };
        assert_eq!(all(b"a\r\n\r\nb\r", 10), (vec![b"a\r\n".to_vec(), b"\r\n".to_vec()], true));
        // The mark lies across two reads.
        let long = [&[b'x'; 4095][..], b"\r\n"].concat();
        assert_eq!(all(&long, 8000), (vec![long.clone()], true));
        assert_eq!(all(&[b'x'; 9000], 8000), (Vec::new(), false));
    }

    #[test]
    fn clients_beyond_the_places_are_hung_up_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let terms = terms(1);
        // An answer takes until the client has left.
        let service = Service::start(bound(&path), terms, move |stream| {
            let request = Messages::new(stream, b"\n", 10, terms).next().expect("received");
            stream.write_all(&request.expect("a request")).expect("answered");
            let _ = stream.read(&mut [0]);
        })
        .expect("started");
        let read = |stream: &mut UnixStream| stream.read(&mut [0]).expect("an answer");
        let mut first = UnixStream::connect(&path).expect("connected");
        first.write_all(b"\n").expect("sent");
        assert_eq!(read(&mut first), 1);
        let mut second = UnixStream::connect(&path).expect("connected");
        assert_eq!(read(&mut second), 0, "no place");
        drop(service);
        assert!(!path.exists());
    }

    /// Many clients that say nothing kept all others out for a minute.
    #[test]
    fn clients_that_say_nothing_keep_nobody_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let _service = lines(&path, Duration::from_secs(3600), 1);
        let connect = || UnixStream::connect(&path).expect("connected");
        let silent: Vec<_> = (0..20).map(|_| connect()).collect();
        let (mut client, mut answer) = (connect(), [0]);
        client.write_all(b"?\n").expect("sent");
        assert_eq!(client.read(&mut answer).expect("an answer"), 1);
        drop(silent);
    }
}
