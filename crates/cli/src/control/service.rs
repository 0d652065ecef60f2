//! Small services beside the frontends: a thread accepts, and each connection has one of its own.
//!
//! - V1: a client takes one of a fixed number of places; without one it is hung up on.
//! - V2: a client has so long to say something and to take a part of an answer, and no longer; a
//!   whole request and a whole answer take at most twice as long, however small their parts.
//! - V3: the threads are never waited for: they hold nothing that the end of the process would
//!   leave behind but the socket's file, which [`Service`] removes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};
use zfold_disk::nbd::SocketFile;

/// Wait after a failed `accept`, which is for want of descriptors or memory.
const BREATH: Duration = Duration::from_millis(100);

/// Bytes of an answer that are sent at a time: for more, a Unix socket waits more than once.
const PIECE: usize = 16 << 10;

/// A connection.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

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
        let (taken, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
        let accepting = move || {
            loop {
                let Ok(mut stream) = accept(&listener, terms.patience) else {
                    thread::sleep(BREATH);
                    continue;
                };
                // Only this thread adds, so the check holds. Relaxed: a count, nothing else.
                if taken.load(Ordering::Relaxed) >= terms.places {
                    continue;
                }
                taken.fetch_add(1, Ordering::Relaxed);
                let place = Place(Arc::clone(&taken));
                let serve = Arc::clone(&serve);
                let talk = move || {
                    let _place = place;
                    serve(&mut stream);
                };
                // A thread that cannot be started hangs up, and gives its place back.
                let _ = thread::Builder::new().name("zfold-service".to_owned()).spawn(talk);
            }
        };
        thread::Builder::new().name("zfold-accept".to_owned()).spawn(accepting)?;
        Ok(Self { _file: file })
    }
}

/// A place that a client has taken.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    /// Returns the next message with its end mark; `None` if the client leaves before.
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
                return Ok(Some(std::mem::replace(&mut self.text, rest)));
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
        let service = Service::start(bound(&path), terms(1), |stream| {
            let _ = stream.write_all(b"!");
            let _ = stream.read(&mut [0]);
        })
        .expect("started");
        let read = |stream: &mut UnixStream| stream.read(&mut [0]).expect("an answer");
        let mut first = UnixStream::connect(&path).expect("connected");
        assert_eq!(read(&mut first), 1);
        let mut second = UnixStream::connect(&path).expect("connected");
        assert_eq!(read(&mut second), 0, "no place");
        drop(service);
        assert!(!path.exists());
    }
}
