//! Sends the manager's messages to the front, by a thread of its own: the front may be stopped, or
//! wait for its terminal, and no other thread should wait for it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::channel::{self, ToFront};

/// Messages that wait, at most; further remarks are left out.
const WAITING_MAX: usize = 1024;

/// Messages on their way to the front.
#[derive(Clone)]
pub(super) struct Outbox {
    /// `None` is the end.
    messages: Sender<Option<ToFront>>,
    waiting: Arc<AtomicUsize>,
}

impl Outbox {
    /// Starts the thread that writes to the socket.
    ///
    /// # Errors
    /// The system starts none, or has no descriptor left.
    pub(super) fn start(socket: &UnixStream) -> io::Result<(Self, JoinHandle<()>)> {
        let socket = socket.try_clone()?;
        let (messages, to_send) = mpsc::channel();
        let outbox = Self { messages, waiting: Arc::default() };
        let waiting = Arc::clone(&outbox.waiting);
        let write = move || {
            while let Ok(Some(message)) = to_send.recv() {
                // A front that is gone ends this process soon.
                let _ = channel::send(&socket, &message);
                waiting.fetch_sub(1, Ordering::Relaxed);
            }
        };
        Ok((outbox, thread::Builder::new().name("outbox".to_owned()).spawn(write)?))
    }

    /// Sends a message, and waits for nothing. A remark is left out where too many wait.
    pub(super) fn send(&self, message: ToFront) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let is_remark = matches!(message, ToFront::Remark(_));
        // What is sent after the end fails.
        if is_remark && waiting >= WAITING_MAX || self.messages.send(Some(message)).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until all is sent; nothing can be sent after that, even by others that have this.
    pub(super) fn finish(&self, writer: JoinHandle<()>) {
        let _ = self.messages.send(None);
        let _ = writer.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::end::End;

    #[test]
    fn a_front_that_does_not_read_holds_up_nobody_and_misses_remarks_alone() {
        let (front, manager) = UnixStream::pair().expect("a pair");
        let (outbox, writer) = Outbox::start(&manager).expect("a thread");
        // More than the socket takes, so that the thread waits.
        let line = "x".repeat(4096);
        (0..5 * WAITING_MAX).for_each(|_| outbox.send(ToFront::Remark(line.clone())));
        outbox.send(ToFront::Ended(End::Code(7)));
        let reader = thread::spawn(|| channel::messages::<ToFront>(front).collect::<Vec<_>>());
        outbox.finish(writer);
        outbox.send(ToFront::Remark("too late".to_owned()));
        drop((outbox, manager));
        let heard = reader.join().expect("read");
        assert_eq!(heard.last(), Some(&ToFront::Ended(End::Code(7))), "what is no remark arrives");
        assert!((WAITING_MAX..3 * WAITING_MAX).contains(&heard.len()), "{}", heard.len());
    }
}
