//! The connections of a device against each other: what a broken one has sent is not carried out
//! after a request that came later.
//!
//! A client that dies leaves requests behind: in the socket, in buffers, in threads that are about
//! to serve them. Another client, which may know of the death, writes the same blocks.
//!
//! - F1: a request that was sent after another connection of the device had broken begins when no
//!   change of that one is under way any longer, and none begins afterwards. For the system has
//!   put the hang-up on `watch` before it lets the later request through, and before a thread
//!   serves what it has received it looks there, marks the broken and waits (activity/A1, A2).
//! - F2: a connection leaves `watch` when none of its changes is under way: once it is marked and
//!   was waited for, or its threads have ended. So a thread that finds nothing there need not
//!   wait, whatever others found before it.
//! - F3: only changes that have begun are waited for, and these wait for no peer: neither for
//!   payloads, nor for replies to be taken, nor for memory of the budget. A read that hangs delays
//!   its own connection.
//! - F4: a connection alone on its device is not watched and does not look: nothing that others
//!   have sent can be under way. The second to come has both watched before it is counted.
//!
//! A connection has *broken* when it is closed in both directions, by either side. Over TCP the
//! end of what the client sends has to be enough, as nothing else comes from a client that was
//! killed; except behind a `DISCONNECT` that was read, by which a client leaves in order. Bytes
//! that the client's system still has to send come before that end, and with it as late as it
//! likes: until the server has received the end, it cannot know of it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, retry_on_intr};
use zfold_store::pool::Lock;

use super::socket::{Peer, Socket};

/// Connections that one look finds; it looks again if there are more.
const FOUND_MAX: usize = 8;

/// Closed in both directions, or reset.
const CLOSED: EventFlags = EventFlags::HUP.union(EventFlags::ERR);

/// The connections in transmission of one device.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// Reports those that have broken (F1); made with the first member.
    watch: OnceLock<OwnedFd>,
    count: AtomicUsize,
    /// By number, which is never used again: by the time that a thread looks one up that it found
    /// on `watch`, the connection may have ended. Held for a look or a change.
    members: Lock<HashMap<u64, Arc<Socket>>>,
}

/// A connection's place at a fence, until this is dropped: after its last thread.
#[derive(Debug)]
pub(super) struct Member<'a> {
    fence: &'a Fence,
    id: u64,
    socket: Arc<Socket>,
    stopping: &'a AtomicBool,
}

impl Fence {
    /// Enters a connection under a number that no other has had. Once `stopping` is set, the end
    /// of what a client sends is the server's doing and breaks nothing.
    ///
    /// # Errors
    /// The system cannot watch one more.
    pub(super) fn enter<'a>(
        &'a self,
        id: u64,
        socket: &Arc<Socket>,
        stopping: &'a AtomicBool,
    ) -> io::Result<Member<'a>> {
        let mut members = self.members.lock();
        let watch = match self.watch.get() {
            Some(watch) => watch,
            // No other thread makes it: the lock is held.
            None => {
                let new = epoll::create(CreateFlags::CLOEXEC)?;
                self.watch.get_or_init(|| new)
            }
        };
        if members.len() == 1 {
            members.iter().try_for_each(|(&id, alone)| add(watch, id, alone, interest(alone)))?;
        }
        if !members.is_empty() {
            add(watch, id, socket, interest(socket))?;
        }
        members.insert(id, Arc::clone(socket));
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(Member { fence: self, id, socket: Arc::clone(socket), stopping })
    }
}

/// Returns what is watched of a socket besides [`CLOSED`].
fn interest(socket: &Socket) -> EventFlags {
    if socket.peer() == Peer::Local { EventFlags::empty() } else { EventFlags::RDHUP }
}

/// Has a socket watched, if it is not yet.
fn add(watch: &OwnedFd, id: u64, socket: &Socket, interest: EventFlags) -> io::Result<()> {
    match epoll::add(watch, socket, EventData::new_u64(id), interest) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // One step for those that enter: what is no member is not watched.
        let mut members = self.fence.members.lock();
        members.remove(&self.id);
        self.unwatch(&self.socket);
        self.fence.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Member<'_> {
    /// Makes requests that this thread has received safe to serve: returns when all that broken
    /// connections began is done, and no more of theirs will begin (F1). Costs a system call where
    /// the device has several connections, and nothing else where none has broken.
    pub(super) fn settle(&self) {
        if self.fence.count.load(Ordering::Acquire) > 1 {
            while self.settle_some() == FOUND_MAX {}
        }
    }

    /// Settles up to [`FOUND_MAX`] connections, and returns how many that were.
    fn settle_some(&self) -> usize {
        let Some(watch) = self.fence.watch.get() else { return 0 };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; FOUND_MAX];
        let found = retry_on_intr(|| epoll::wait(watch, &mut events, Some(&now)));
        let mut settled = 0;
        // It cannot fail: descriptor and space are valid.
        for &Event { flags, data } in &events[..found.unwrap_or(0)] {
            // Of what only ends: the server ends it, too.
            if !flags.intersects(CLOSED) && self.stopping.load(Ordering::Acquire) {
                continue;
            }
            let socket = self.fence.members.lock().get(&data.u64()).cloned();
            if let Some(socket) = socket {
                socket.activity().break_off();
                self.unwatch(&socket);
            }
            settled += 1;
        }
        settled
    }

    /// The client said that it leaves: what it has sent is carried out although it sends no more.
    pub(super) fn leaves(&self) {
        let Some(watch) = self.fence.watch.get() else { return };
        let (data, closed) = (EventData::new_u64(self.id), EventFlags::empty());
        if epoll::modify(watch, &self.socket, data, closed) == Err(Errno::NOENT) {
            // It was alone, or found broken. Without, it counts as broken once it is not alone.
            let _ = add(watch, self.id, &self.socket, closed);
        }
    }

    fn unwatch(&self, socket: &Socket) {
        if let Some(watch) = self.fence.watch.get() {
            // Another thread may have done so.
            let _ = epoll::delete(watch, socket);
        }
    }
}
