//! The sending side of a connection.
//!
//! Each thread queues its replies. One thread at a time sends: the one that found no other sending.
//! It sends until the queue is empty, with few system calls, and the others go on with requests
//! meanwhile. The lock guards the queue and the flag; it is never held while bytes are sent.

use std::io::IoSlice;

use zfold_store::pool::Lock;

use super::budget::Budget;
use super::channel::Channel;

/// Replies that belong together, and what they hold of the connection's budget.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) weight: u64,
}

#[derive(Debug, Default)]
pub(super) struct Output(Lock<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Replies>,
    sending: bool,
    /// The peer is gone: queued replies are dropped.
    broken: bool,
}

impl Output {
    /// Sends `replies`, or leaves them to the thread that is sending; afterwards they are empty.
    /// What they held of `budget` is given back once they are sent, or cannot be.
    pub(super) fn send(&self, channel: &Channel, budget: &Budget, replies: &mut Replies) {
        {
            let mut queue = self.0.lock();
            if queue.sending {
                queue.waiting.push(std::mem::take(replies));
                return;
            }
            queue.sending = true;
        }
        self.send_now(channel, &mut [IoSlice::new(&replies.bytes)]);
        budget.release(replies.weight);
        replies.bytes.clear();
        replies.weight = 0;
        while let Some(waiting) = self.next() {
            let mut slices: Vec<_> =
                waiting.iter().map(|replies| IoSlice::new(&replies.bytes)).collect();
            self.send_now(channel, &mut slices);
            budget.release(waiting.iter().map(|replies| replies.weight).sum());
        }
    }

    /// Returns what is queued; if nothing is, this thread is no longer the sending one.
    fn next(&self) -> Option<Vec<Replies>> {
        let mut queue = self.0.lock();
        queue.sending = !queue.waiting.is_empty();
        queue.sending.then(|| std::mem::take(&mut queue.waiting))
    }

    fn send_now(&self, channel: &Channel, slices: &mut [IoSlice<'_>]) {
        if self.0.lock().broken {
            return;
        }
        if channel.send_all(slices).is_err() {
            self.0.lock().broken = true;
            // Nothing more can be answered, so nothing more is read.
            channel.abort();
        }
    }
}
