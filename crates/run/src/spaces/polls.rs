//! Which CPUs read the messages of a space: those where its threads were recently seen.
//!
//! A space is in the polls of a few CPUs, at least one; each reader waits at the poll of its CPU.
//! One poll too many costs a needless wake-up of a reader, one too few a wake-up across CPUs, so
//! all of this is a guess, from samples of where the threads that send messages run. `homes` is a
//! leaf in the lock order ([`shared`](crate::shared)); no message is read under it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::link::SpaceId;
use crate::spaces::managed::{Managed, lock};
use crate::sys::proc;

/// Most readers.
const READERS: usize = 64;
/// One in this many messages is sampled for where its thread runs.
const SAMPLED: u32 = 32;
/// Samples in a row without one from a CPU after which that CPU is no longer polled.
const FORGOTTEN: u32 = 8;
/// Not a space: tells the readers to end.
const STOP: u64 = u64::MAX;

/// What the readers poll.
#[derive(Debug)]
pub(crate) struct Polls {
    pub(crate) polls: Vec<Poll>,
    pub(crate) stopping: AtomicBool,
    bell: OwnedFd,
    /// For each space, the polls that it is in, and when its threads were seen there last. Few
    /// messages need it.
    homes: Mutex<BTreeMap<SpaceId, Homes>>,
}

#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) epoll: OwnedFd,
    pub(crate) cpu: usize,
}

#[derive(Debug, Default)]
struct Homes {
    samples: u32,
    /// The poll, and the last sample at which it was useful.
    polls: Vec<(usize, u32)>,
}

impl Polls {
    /// Makes one for each CPU that this process may use.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut polls = Vec::new();
        for cpu in cpus() {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &bell, EventData::new_u64(STOP), EventFlags::IN)?;
            polls.push(Poll { epoll, cpu });
        }
        Ok(Self { polls, stopping: AtomicBool::new(false), bell, homes: Mutex::default() })
    }

    /// Has the messages of a space read.
    pub(crate) fn add(&self, managed: &Managed) {
        let home = cpu_of(managed.pid()).map_or(0, |cpu| self.nearest(cpu));
        let mut homes = lock(&self.homes);
        let home = Homes { polls: vec![(home, 0)], ..Homes::default() };
        managed.messages.store(0, Ordering::Relaxed);
        self.poll(managed, home.polls[0].0);
        homes.insert(managed.id, home);
    }

    fn poll(&self, managed: &Managed, at: usize) {
        let Some(access) = managed.access() else { return };
        // Fails if the space is in this poll already, or if the kernel has no memory: then it is in
        // another.
        let data = EventData::new_u64(managed.id.0);
        let _ = epoll::add(&self.polls[at].epoll, access, data, EventFlags::IN);
    }

    /// No longer has them read.
    pub(crate) fn remove(&self, managed: &Managed) {
        let homes = lock(&self.homes).remove(&managed.id);
        let (Some(access), Some(homes)) = (managed.access(), homes) else { return };
        for (at, _) in homes.polls {
            let _ = epoll::delete(&self.polls[at].epoll, access);
        }
    }

    /// A space was changed, by a thread that the message does not name: only if it has one thread,
    /// this says where messages come from.
    pub(crate) fn changed(&self, managed: &Managed) {
        let tasks = lock(&managed.tasks);
        let only = tasks.first().copied().filter(|_| tasks.len() == 1);
        drop(tasks);
        if let Some(thread) = only {
            self.told(managed, thread);
        }
    }

    /// A thread of a space has sent a message.
    pub(crate) fn told(&self, managed: &Managed, thread: i32) {
        if self.polls.len() == 1 {
            return;
        }
        // Relaxed: which messages are sampled does not matter.
        let messages = managed.messages.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // More often as long as little is known.
        if !messages.is_multiple_of(SAMPLED) && messages > 4 {
            return;
        }
        let mut all = lock(&self.homes);
        let Some(homes) = all.get_mut(&managed.id) else { return };
        let Some(at) = cpu_of(thread).map(|cpu| self.nearest(cpu)) else { return };
        homes.samples += 1;
        let now = homes.samples;
        match homes.polls.iter_mut().find(|(home, _)| *home == at) {
            Some(home) => home.1 = now,
            None => {
                homes.polls.push((at, now));
                self.poll(managed, at);
            }
        }
        let access = managed.access();
        homes.polls.retain(|(home, seen)| {
            let stays = now - seen <= FORGOTTEN;
            if !stays && let Some(access) = access {
                let _ = epoll::delete(&self.polls[*home].epoll, access);
            }
            stays
        });
    }

    fn nearest(&self, cpu: usize) -> usize {
        self.polls.iter().position(|poll| poll.cpu == cpu).unwrap_or(cpu % self.polls.len())
    }

    /// Ends the readers.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// CPUs that this process may use, the first few.
fn cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).take(READERS).collect()
}

/// The CPU on which a thread ran last.
fn cpu_of(thread: i32) -> Option<usize> {
    /// Which word of the line, after the name.
    const PROCESSOR: usize = 36;
    if thread <= 0 {
        return None;
    }
    proc::stat(thread, PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::readers::pin;

    /// A program that only unmaps and discards names no thread by a fault.
    #[test]
    fn changes_are_read_where_the_only_thread_is() {
        let polls = Polls::new().unwrap();
        let pid = std::process::id().cast_signed();
        let managed = crate::spaces::tests::spaces(1 << 20).1(1, pid);
        lock(&managed.tasks).insert(rustix::thread::gettid().as_raw_nonzero().get());
        polls.add(&managed);
        let homes = || -> Vec<usize> {
            let homes = lock(&polls.homes);
            homes[&managed.id].polls.iter().map(|(at, _)| polls.polls[*at].cpu).collect()
        };
        for cpu in cpus().into_iter().cycle().take(3) {
            pin(cpu);
            (0..SAMPLED * (FORGOTTEN + 2)).for_each(|_| polls.changed(&managed));
            assert_eq!(homes(), [cpu]);
        }
        let before = homes();
        lock(&managed.tasks).insert(1);
        pin(cpus()[0]);
        (0..SAMPLED * 2).for_each(|_| polls.changed(&managed));
        assert_eq!(homes(), before, "one of two, and nobody knows which");
    }
}
