//! A connection in transmission: which threads read, serve and send.
//!
//! ```text
//!            +------------------ turn: the receiving side ------------------+
//!   leader:  | wait for a request, take what else is buffered, pass the turn | serve, send
//!   others:  | wait for the turn, or serve and send what they have           |
//! ```
//!
//! The thread that has the receiving side is the leader. It takes a batch: the first request,
//! and further ones that have arrived whole, then puts the receiving side down and serves its
//! batch itself. Another thread is woken, or started if there is none, only if more requests have
//! arrived than the batch takes, or one of it may take long. So a client that sends one request
//! at a time is served by one thread that hands nothing over; one with many in flight keeps
//! several busy; and many small requests come with one system call and leave with one. Where
//! requests turn out to be slow, because the device waits for a disk, a batch is a single request,
//! so that all threads wait side by side.
//!
//! - C1: no lock is held while a thread receives, serves or sends. The locks (turn, budget,
//!   output, session) guard memory only and are never taken inside one another.
//! - C2: a request read is answered, unless sending fails; then the rest is dropped and the
//!   connection ends. Replies may leave in any order.
//! - C3: what requests hold from being read to being answered is limited by the budget. The leader
//!   waits for it only when its own batch is empty, so that it waits only for threads that do not
//!   wait. A request that does not fit is served in pieces (`pieces.rs`) by the leader, which keeps
//!   the receiving side meanwhile.
//! - C4: when the client sends no more, breaks the protocol, or the server stops, no further
//!   request is read; those read are answered, and the last thread closes the connection.
//! - C5: a thread settles what broken connections have left (fence/F1) when it has received what
//!   it is about to serve, and has begun nothing of it.

use std::io;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use zfold_nbd::{Request, command};
use zfold_store::pool::{Lock, sound};

use super::budget::{Budget, RESERVE, Reserved, Shared};
use super::channel::{Channel, Input};
use super::fence::Member;
use super::output::{Output, Replies};
use super::pieces;
use super::serve::{Responder, is_long, weight};
use super::stats::NbdCounters;

/// Requests that one thread takes at once.
const BATCH_REQUESTS: usize = 16;
/// Time per request that is slow: no page takes as long that is in memory.
const SLOW: Duration = Duration::from_micros(200);
/// Bytes of replies after which they are sent although more of the batch is to be served.
const SEND_BYTES: usize = 64 << 10;
/// Requests after which their replies are sent although more of the batch is to be served.
const SEND_REQUESTS: usize = 8;
/// Largest buffer that a thread keeps from one batch to the next: the memory that a batch of pages
/// needs.
const KEPT_BYTES: usize = 80 << 10;

/// A connection in transmission.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    channel: Channel,
    responder: Responder<'a>,
    fence: Member<'a>,
    threads: usize,
    stopping: &'a AtomicBool,
    counters: &'a NbdCounters,
    turn: Lock<Turn>,
    turn_passed: Condvar,
    budget: Budget<'a>,
    output: Output,
    /// Whether the last batch was slow.
    slow: AtomicBool,
}

/// The receiving side, and the threads that wait for it.
#[derive(Debug)]
struct Turn {
    /// `None` while a thread has it, and after the end.
    input: Option<Input>,
    idle: usize,
    threads: usize,
    ended: bool,
}

/// Requests taken together.
#[derive(Debug, Default)]
struct Batch {
    requests: Vec<Taken>,
    /// Payloads one after the other; longer than `used` where a former batch needed more.
    payloads: Vec<u8>,
    used: usize,
    replies: Replies,
}

#[derive(Debug)]
struct Taken {
    request: Request,
    /// Where its payload ends; it begins where the former one's ends.
    payload_end: usize,
    weight: u64,
}

/// The next step after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next thread may take the turn when it likes.
    Idle,
    /// There is, or may soon be, work for another thread.
    Busy,
    /// No more requests.
    End,
}

/// Ends the connection if a thread of it panics: the others would wait for ever.
struct EndOnPanic<'c>(&'c Connection<'c>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.budget.close();
            self.0.channel.abort();
            self.0.end();
        }
    }
}

impl<'a> Connection<'a> {
    /// Returns a connection with at most `threads` threads, which takes no more requests once
    /// `stopping` is set.
    pub(super) fn new(
        (channel, input): (Channel, Input),
        (responder, fence): (Responder<'a>, Member<'a>),
        threads: usize,
        stopping: &'a AtomicBool,
        (shared, counters): (&'a Shared, &'a NbdCounters),
    ) -> Self {
        Self {
            channel,
            responder,
            fence,
            threads,
            stopping,
            counters,
            turn: Lock::new(Turn { input: Some(input), idle: 0, threads: 1, ended: false }),
            turn_passed: Condvar::new(),
            budget: Budget::new(shared),
            output: Output::default(),
            slow: AtomicBool::new(false),
        }
    }

    /// Serves it to its end, which it returns after.
    pub(super) fn run(&self) {
        std::thread::scope(|scope| self.work(scope));
        self.channel.close();
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let _end = EndOnPanic(self);
        let mut batch = Batch::default();
        while let Some(mut input) = self.take_turn() {
            let next = self.take_batch(&mut input, &mut batch).unwrap_or(Next::End);
            match next {
                Next::End => self.end(),
                Next::Idle => self.pass_turn(input, false, scope),
                Next::Busy => self.pass_turn(input, true, scope),
            }
            self.serve(&mut batch);
        }
    }

    /// Waits for the receiving side; `None` after the end.
    fn take_turn(&self) -> Option<Input> {
        let mut turn = self.turn.lock();
        while turn.input.is_none() && !turn.ended {
            turn.idle += 1;
            turn = sound(self.turn_passed.wait(turn));
            turn.idle -= 1;
        }
        turn.input.take()
    }

    /// Puts the receiving side down, and gets another thread to take it if there is work for it.
    fn pass_turn<'scope>(&'scope self, input: Input, busy: bool, scope: &'scope Scope<'scope, '_>) {
        let start = {
            let mut turn = self.turn.lock();
            turn.input = Some(input);
            let start = busy && turn.idle == 0 && turn.threads < self.threads;
            if start {
                turn.threads += 1;
            } else if busy && turn.idle > 0 {
                self.turn_passed.notify_one();
            }
            start
        };
        if start
            && Builder::new().name("nbd".into()).spawn_scoped(scope, || self.work(scope)).is_err()
        {
            // No more threads to be had: those there are do the work.
            self.turn.lock().threads -= 1;
        }
    }

    fn end(&self) {
        self.turn.lock().ended = true;
        self.turn_passed.notify_all();
    }

    /// Takes requests: one, for which it waits, and those that have arrived besides.
    ///
    /// # Errors
    /// Of the socket, or of a client that does not speak the protocol; the requests that the batch
    /// then has are to be served.
    fn take_batch(&self, input: &mut Input, batch: &mut Batch) -> io::Result<Next> {
        // Relaxed: a hint.
        let most = if self.slow.load(Ordering::Relaxed) { 1 } else { BATCH_REQUESTS };
        while batch.requests.len() < most {
            let first = batch.requests.is_empty();
            while first && input.buffered().len() < Request::LEN {
                // Acquire is not needed: the flag guards nothing but itself.
                if self.stopping.load(Ordering::Relaxed) || input.fill(&self.channel)? == 0 {
                    return Ok(Next::End);
                }
            }
            let Some(head) = input.buffered().first_chunk() else { return Ok(Next::Idle) };
            let request = Request::parse(head).ok_or(io::ErrorKind::InvalidData)?;
            if !first && input.buffered().len() < Request::LEN + request.payload() {
                // It has begun to arrive. If it does not fit the buffer it never will be whole.
                let whole = input.holds(Request::LEN + request.payload());
                return Ok(if whole { Next::Idle } else { Next::Busy });
            }
            if request.command == command::DISCONNECT {
                self.fence.leaves();
                return Ok(Next::End);
            }
            let long = is_long(&request);
            if long && !first {
                return Ok(Next::Busy);
            }
            let weight = weight(&request, self.responder.max_request);
            if !first && !self.budget.try_reserve(weight) {
                return Ok(Next::Idle);
            }
            let reserved = if first { self.budget.reserve(weight) } else { Reserved::Whole };
            if reserved == Reserved::Closed {
                return Ok(Next::End);
            }
            input.consume(Request::LEN);
            if reserved == Reserved::Pieces {
                let served = self.serve_in_pieces(input, &request, &mut batch.replies);
                self.budget.release(RESERVE);
                served?;
                continue;
            }
            if let Err(error) = self.take_payload(input, batch, request, weight) {
                self.budget.release(weight);
                return Err(error);
            }
            if long {
                return Ok(Next::Busy);
            }
        }
        Ok(if input.buffered().is_empty() { Next::Idle } else { Next::Busy })
    }

    fn serve_in_pieces(
        &self,
        input: &mut Input,
        request: &Request,
        replies: &mut Replies,
    ) -> io::Result<()> {
        self.fence.settle();
        let send = |bytes: &mut Vec<u8>| {
            std::mem::swap(bytes, &mut replies.bytes);
            self.output.send(&self.channel, &self.budget, replies);
            std::mem::swap(bytes, &mut replies.bytes);
        };
        let served = pieces::serve(&self.responder, request, (&self.channel, input), send)?;
        self.counters.served(1, u64::from(!served));
        Ok(())
    }

    fn take_payload(
        &self,
        input: &mut Input,
        batch: &mut Batch,
        request: Request,
        weight: u64,
    ) -> io::Result<()> {
        let len = request.payload();
        if len > self.responder.max_request as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if len > 0 {
            input.read_exact(&self.channel, batch.payload_mut(len))?;
        }
        batch.requests.push(Taken { request, payload_end: batch.used, weight });
        Ok(())
    }

    /// Serves a batch and empties it.
    fn serve(&self, batch: &mut Batch) {
        let Batch { requests, payloads, used, replies } = batch;
        let (mut begin, mut errors) = (0, 0);
        if !requests.is_empty() {
            self.fence.settle();
        }
        let mut spent = Duration::ZERO;
        for (n, taken) in requests.iter().enumerate() {
            let payload = &payloads[begin..taken.payload_end];
            begin = taken.payload_end;
            replies.weight += taken.weight;
            let started = Instant::now();
            let served = self.responder.answer(&taken.request, payload, &mut replies.bytes);
            spent += started.elapsed();
            errors += u64::from(!served);
            let last = n + 1 == requests.len();
            if last || replies.bytes.len() >= SEND_BYTES || (n + 1) % SEND_REQUESTS == 0 {
                self.output.send(&self.channel, &self.budget, replies);
            }
        }
        self.counters.served(requests.len() as u64, errors);
        self.slow.store(spent > SLOW * requests.len() as u32, Ordering::Relaxed);
        requests.clear();
        *used = 0;
        if payloads.capacity() > KEPT_BYTES {
            *payloads = Vec::new();
        }
        if replies.bytes.capacity() > KEPT_BYTES {
            replies.bytes = Vec::new();
        }
    }
}

impl Batch {
    /// Returns room for a payload.
    fn payload_mut(&mut self, len: usize) -> &mut [u8] {
        let begin = self.used;
        self.used += len;
        if self.payloads.len() < self.used {
            self.payloads.resize(self.used, 0);
        }
        &mut self.payloads[begin..self.used]
    }
}
