//! The threads that read messages, one on each CPU.
//!
//! A thread that faults wakes every reader that polls its space. A reader on the same CPU answers
//! within microseconds, without interrupting another CPU; one on another CPU costs that CPU a
//! wasted switch, or has to be woken from sleep. So a space is polled on the CPUs where its threads
//! were last seen, and nowhere else. A thread that changes a space waits like one that faults, but
//! its message does not name it: in a space with one thread, it is that thread.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::faults::answer::answer;
use crate::link::SpaceId;
use crate::shared::Shared;
use crate::spaces::managed::Managed;

/// Spaces with messages that are handled in one round.
const AT_ONCE: usize = 8;

/// Spaces that a reader finds without the shared table.
const KNOWN: usize = 8;

/// Starts the readers.
///
/// # Errors
/// The system starts no thread; those that were started run until [`Polls::stop`].
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    for at in 0..shared.books.polls.polls.len() {
        let shared = Arc::clone(shared);
        let name = format!("reader-{}", shared.books.polls.polls[at].cpu);
        let run = move || read(&shared, at);
        threads.push(thread::Builder::new().name(name).stack_size(256 << 10).spawn(run)?);
    }
    Ok(())
}

fn read(shared: &Arc<Shared>, at: usize) {
    let polls = &shared.books.polls;
    pin(polls.polls[at].cpu);
    crate::sys::urgency::be_urgent();
    let mut known = Known::default();
    let mut events = Vec::with_capacity(AT_ONCE);
    loop {
        events.clear();
        if epoll::wait(&polls.polls[at].epoll, spare_capacity(&mut events), None).is_err() {
            continue;
        }
        if polls.stopping.load(Ordering::Relaxed) {
            return;
        }
        for event in &events {
            if let Some(managed) = known.find(shared, SpaceId(event.data.u64())) {
                answer(shared, &managed);
            }
        }
        shared.call_evictor_if_high();
    }
}

/// The spaces that a reader found last, by weak references: an open descriptor of a space that has
/// gone would make unmapping wait for a reader.
#[derive(Default)]
struct Known {
    spaces: [(u64, Weak<Managed>); KNOWN],
    /// The place of the next one.
    next: usize,
}

impl Known {
    fn find(&mut self, shared: &Shared, id: SpaceId) -> Option<Arc<Managed>> {
        let known = self.spaces.iter().find(|(known, _)| *known == id.0);
        let managed = known.and_then(|(_, managed)| managed.upgrade());
        if managed.as_ref().is_some_and(|managed| !managed.is_dead()) {
            return managed;
        }
        let managed = shared.books.find(id)?;
        self.spaces[self.next] = (id.0, Arc::downgrade(&managed));
        self.next = (self.next + 1) % KNOWN;
        Some(managed)
    }
}

pub(crate) fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // On another CPU it is slower, not wrong.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
