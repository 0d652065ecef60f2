//! Sends the manager's messages to the front, by a thread of its own: the front may be stopped, or
//! wait for its terminal, and no other thread should wait for it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use zfold_pool::Lock;

use super::channel::{self, ToFront};

/// Remarks that wait, at most; further ones are counted and left out.
const REMARKS_MAX: usize = 1024;

/// Messages on their way to the front.
pub(super) struct Outbox {
    /// `None` once it is closed.
    messages: Lock<Option<Sender<ToFront>>>,
    /// Remarks that wait.
    waiting: Arc<AtomicUsize>,
    /// Remarks that were left out since the last that was not.
    left_out: AtomicUsize,
    writer: Lock<Option<JoinHandle<()>>>,
}

impl Outbox {
    /// Starts the thread that writes to the socket.
    ///
    /// # Errors
    /// The system starts none, or has no descriptor left.
    pub(super) fn start(socket: &UnixStream) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        let (messages, to_send) = mpsc::channel::<ToFront>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&waiting);
        let write = move || {
            for message in to_send {
                // A front that is gone ends this process soon.
                let _ = channel::send(&socket, &message);
                if is_remark(&message) {
                    sent.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let writer = thread::Builder::new().name("outbox".to_owned()).spawn(write)?;
        let left_out = AtomicUsize::new(0);
        let (messages, writer) = (Lock::new(Some(messages)), Lock::new(Some(writer)));
        Ok(Self { messages, waiting, left_out, writer })
    }

    /// Sends a message, and waits for nothing. A remark is left out where too many wait.
    pub(super) fn send(&self, message: ToFront) {
        let messages = self.messages.lock();
        let Some(messages) = &*messages else { return };
        if is_remark(&message) {
            if self.waiting.load(Ordering::Relaxed) >= REMARKS_MAX {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.tell_left_out(messages);
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        // It fails only if the thread has panicked.
        let _ = messages.send(message);
    }
}

impl Outbox {
    /// Waits until all is sent; nothing can be sent after that, even by others that have this.
    pub(super) fn finish(&self) {
        let messages = self.messages.lock().take();
        if let Some(messages) = messages {
            self.tell_left_out(&messages);
        }
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    fn tell_left_out(&self, messages: &Sender<ToFront>) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let line =
                format!("{left_out} more messages were dropped because they were not read in time");
            let _ = messages.send(ToFront::Remark(line));
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.finish();
    }
}

fn is_remark(message: &ToFront) -> bool {
    matches!(message, ToFront::Unmanaged(_) | ToFront::Remark(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::record::End;

    #[test]
    fn a_front_that_does_not_read_holds_up_nobody_and_is_told_what_was_left_out() {
        let (front, manager) = UnixStream::pair().expect("a pair");
        let outbox = Outbox::start(&manager).expect("a thread");
        // More than the socket takes, so that the thread waits.
        let line = "x".repeat(4096);
        (0..5 * REMARKS_MAX).for_each(|_| outbox.send(ToFront::Remark(line.clone())));
        outbox.send(ToFront::Ended(End::Code(7)));
        let reader = thread::spawn(|| channel::messages::<ToFront>(front).collect::<Vec<_>>());
        while outbox.waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        outbox.send(ToFront::Remark("after".to_owned()));
        outbox.finish();
        outbox.send(ToFront::Remark("too late".to_owned()));
        drop((outbox, manager));
        let heard = reader.join().expect("read");
        assert!(heard.contains(&ToFront::Ended(End::Code(7))), "what is no remark arrives");
        assert_eq!(heard.last(), Some(&ToFront::Remark("after".to_owned())));
        let told = heard.iter().filter(|&heard| *heard == ToFront::Remark(line.clone())).count();
        assert!((REMARKS_MAX..3 * REMARKS_MAX).contains(&told), "{told}");
        // There was room from time to time while they were sent, so the loss is reported in parts.
        let left_out: usize = heard
            .iter()
            .filter_map(|heard| match heard {
                ToFront::Remark(line) => line.split_once(" more messages")?.0.parse::<usize>().ok(),
                _ => None,
            })
            .sum();
        assert_eq!(told + left_out, 5 * REMARKS_MAX);
    }
}
