//! Brings processes that already run under the tracer: all their threads and those of their
//! descendants, or none.
//!
//! Invariants:
//! - R1: until all have been checked, nothing is changed in any of them, and they are traced so
//!   that they continue when the tracer ends. So if one is refused, all stay unchanged.
//! - R2: no thread is left out. Threads and children that a traced thread makes are traced from
//!   birth; so they are listed repeatedly, until a list that was made while all known threads were
//!   stopped names no other.
//! - R3: a number means the process that was asked for: this is checked once the process is traced,
//!   after which its number cannot be reused.
//! - R4: a thread that is ending continues to its end, and nothing is kept of it: a first thread
//!   ends without an event if another execs, and its number then belongs to the other, which may
//!   not have been known.
//! - R5: a thread that does not stop executes no code of its own before it has stopped and was met;
//!   it is asked to stop again whenever it stopped for another reason ([`super::meet`]). Only the
//!   parent of a vfork may be such a thread, and it waits for a child that is traced, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use rustix::thread::gettid;

use super::events::Queue;
use super::filters::{self, filters_of};
use super::task::Task;
use super::{Tracer, let_go, waits};
use crate::link::SpaceId;
use crate::running::{self, Refused, Running};
use crate::sys::arch::Seen;
use crate::sys::proc::{self, Status};
use crate::sys::process;
use crate::sys::ptrace::{self, Event};
use crate::sys::ticks::{Seizer, receive_letting_end};

/// How long the processes are held at most until all their threads have stopped.
const LATE: Duration = Duration::from_secs(1);
/// How much longer if a thread waits for a processor: it stops as soon as it gets one.
const BUSY: Duration = Duration::from_secs(10);
/// Time between two looks for an event.
const LOOKS: Duration = Duration::from_micros(50);
/// How long a thread may take before the reason is looked up.
const SLOW: Duration = Duration::from_millis(20);

/// Threads of processes that already run, traced and stopped.
#[derive(Debug, Default)]
pub(super) struct Caught {
    /// Each thread that was seized, with its process.
    threads: BTreeMap<i32, i32>,
    /// Where they were before they were asked to stop ([`Task::seen`]).
    seen: BTreeMap<i32, Seen>,
    /// The processes, each with the parent through which it was found, which comes before it.
    processes: Vec<(i32, Option<i32>)>,
    /// Threads that have not stopped yet, or have not ended.
    awaited: BTreeSet<i32>,
    /// Threads that were seized and are about to end (R4).
    ending: BTreeSet<i32>,
    /// The obstacle that the last check found. It disappears if a process is about to end or to
    /// exec.
    in_the_way: Option<String>,
    /// What each thread stopped for, including new ones, which were not seized but are traced from
    /// birth.
    events: Queue,
    seizer: Seizer,
}

/// Stops all threads of these processes and of their descendants, with the calling thread as their
/// tracer.
///
/// # Errors
/// The reason and the remedy: they continue as before (R1).
pub(super) fn catch(asked: &[Running]) -> Result<Caught, Refused> {
    let mut caught = Caught::default();
    match caught.all(asked).and_then(|()| caught.check(asked)) {
        Ok(()) => {
            // From here on they end with the tracer.
            for (tid, _) in caught.stopped() {
                let_go(ptrace::set_options(tid, ptrace::FOLLOW));
            }
            Ok(caught)
        }
        Err(reason) => {
            caught.release();
            Err(Refused(reason))
        }
    }
}

impl Caught {
    fn all(&mut self, asked: &[Running]) -> Result<(), String> {
        let late = Instant::now() + LATE;
        loop {
            self.in_the_way = None;
            let others = self.seize_all(asked)?;
            if let Some(running) = asked.iter().find(|running| running.is_another()) {
                return Err(running.is_anothers());
            }
            match self.in_the_way.take() {
                Some(reason) if Instant::now() > late + LATE => return Err(reason),
                Some(_) => std::thread::sleep(LOOKS),
                None if !others && self.awaited.is_empty() => return Ok(()),
                None => {}
            }
            self.wait_until_stopped(late)?;
        }
    }

    /// Seizes all threads that are not known yet, and asks them to stop; returns whether there were
    /// any.
    fn seize_all(&mut self, asked: &[Running]) -> Result<bool, String> {
        let mut others = false;
        let mut family: Vec<_> = asked.iter().map(|running| (running.pid, None)).collect();
        let mut next = 0;
        while let Some(&(process, parent)) = family.get(next) {
            next += 1;
            if !self.processes.iter().any(|(known, _)| *known == process) {
                self.processes.push((process, parent));
            }
            let threads = proc::threads(process).map_err(|error| {
                format!("the threads of process {process} cannot be listed: {error}")
            })?;
            for &thread in &threads {
                others |= self.seize(process, thread)?;
                let known = |child: &i32| family.iter().any(|(other, _)| other == child);
                let children: Vec<_> =
                    proc::children(thread).into_iter().filter(|child| !known(child)).collect();
                family.extend(children.into_iter().map(|child| (child, Some(process))));
            }
        }
        Ok(others)
    }

    /// Seizes a thread; returns whether it was not known.
    fn seize(&mut self, process: i32, thread: i32) -> Result<bool, String> {
        let is_known = self.threads.contains_key(&thread)
            || self.awaited.contains(&thread)
            || self.events.iter().any(|(tid, _)| *tid == thread);
        if is_known {
            return Ok(false);
        }
        // A thread whose process execs is seized only after the ends of the other threads were
        // received; each of these may stop, stop at its end, and end.
        let room = 3 * self.threads.len() + 64;
        let mut meanwhile = Vec::new();
        let seized = self.seizer.seize(thread, ptrace::FOLLOW_LOOSELY, room, &mut meanwhile);
        let is_new = self.seized(process, thread, seized);
        // This thread's own may be among them.
        meanwhile.into_iter().for_each(|(tid, event)| self.take(tid, event));
        is_new
    }

    /// A thread was seized, or not; returns whether it is awaited now.
    fn seized(
        &mut self,
        process: i32,
        thread: i32,
        seized: io::Result<()>,
    ) -> Result<bool, String> {
        match seized {
            Ok(()) => {
                self.threads.insert(thread, process);
                let mut task = Task::default();
                let_go(task.interrupt(thread));
                self.seen.extend(task.seen.map(|seen| (thread, seen)));
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(_) if process::has_lost_first(thread) => {
                self.in_the_way = Some(format!(
                    "process {process} ({}) has lost its first thread, whose end the kernel would \
                        not report; restart it under zfold run",
                    proc::name(process)
                ));
                return Ok(false);
            }
            // It was made by a traced thread, which reports it; or it is ending.
            Err(_) if is_traced(thread) => {}
            Err(_) if !proc::lives(thread) || running::is_workers(thread) => return Ok(false),
            Err(error) => match running::refusal(process) {
                Some(reason) => return Err(reason),
                None => {
                    let program = proc::name(process);
                    let reason = format!("process {process} ({program}) cannot be traced: {error}");
                    self.in_the_way = Some(reason);
                    return Ok(false);
                }
            },
        }
        self.awaited.insert(thread);
        Ok(true)
    }

    fn wait_until_stopped(&mut self, late: Instant) -> Result<(), String> {
        let mut slow = Instant::now() + SLOW;
        loop {
            match receive_letting_end() {
                Ok(Some((tid, event))) => {
                    self.take(tid, event);
                    continue;
                }
                Ok(None) if !self.awaited.is_empty() => {}
                Ok(None) => return Ok(()),
                // All have ended.
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                    self.awaited.clear();
                    return Ok(());
                }
                Err(error) => return Err(format!("nothing can be traced: {error}")),
            }
            let now = Instant::now();
            if now > slow {
                slow = now + SLOW;
                // Some report nothing more, or not soon.
                for tid in std::mem::take(&mut self.awaited) {
                    if !is_traced(tid) || process::has_lost_first(tid) {
                        self.forget(tid);
                    } else if !self.is_in_vfork(tid) {
                        self.awaited.insert(tid);
                    }
                }
            }
            if now > late
                && let Some(reason) = self.reason(now > late + BUSY)
            {
                return Err(reason);
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// Returns the message about a thread that does not stop; not one that waits for a processor,
    /// unless `of_any`.
    fn reason(&self, of_any: bool) -> Option<String> {
        let state = |tid: i32| proc::state(tid).unwrap_or('?');
        let stays = |tid: &&i32| of_any || !matches!(state(**tid), 'R' | 't' | '?');
        let &tid = self.awaited.iter().find(stays)?;
        let process = self.threads.get(&tid).copied().unwrap_or(tid);
        Some(format!(
            "process {process} ({}) has a thread that does not stop (state {}): try again, or thaw \
             it if it is frozen",
            proc::name(process),
            state(tid)
        ))
    }

    /// Records what a thread has stopped for.
    fn take(&mut self, tid: i32, event: Event) {
        self.awaited.remove(&tid);
        match event {
            // It continues: others may wait for its end, such as a thread that execs, and none of
            // its pages are away.
            Event::Ending => return self.forget(tid),
            Event::Ended(_) => {
                self.forget(tid);
                if self.ending.remove(&tid) {
                    return;
                }
            }
            // It has another number than it was asked to stop by.
            Event::Exec => {
                let former = ptrace::message(tid).unwrap_or(tid);
                self.awaited.remove(&former);
                let was_seized = self.threads.remove(&former).is_some();
                if was_seized || self.ending.remove(&tid) {
                    self.threads.insert(tid, tid);
                }
            }
            _ => {}
        }
        self.events.push_back((tid, event));
    }

    /// Keeps nothing of a thread that ends, if it was seized (R4).
    fn forget(&mut self, tid: i32) {
        if self.threads.remove(&tid).is_some() {
            self.ending.insert(tid);
            self.seen.remove(&tid);
            self.events.retain(|(other, _)| *other != tid);
        }
    }

    /// Returns whether a thread waits for a child that has its memory and is traced.
    fn is_in_vfork(&self, tid: i32) -> bool {
        let Some(&process) = self.threads.get(&tid) else { return false };
        let mut children = self.processes.iter().filter(|(_, parent)| *parent == Some(process));
        proc::state(tid) == Some('D')
            && children.any(|&(child, _)| ptrace::share_memory(child, tid) == Some(true))
    }

    /// Threads that are stopped, and for what.
    fn stopped(&self) -> impl Iterator<Item = (i32, Event)> {
        self.events.iter().copied().filter(|(_, event)| !event.is_end())
    }

    /// Checks that the requested processes can be managed, as far as can be known.
    fn check(&self, asked: &[Running]) -> Result<(), String> {
        for running in asked {
            let pid = running.pid;
            let refused = |why: &str| Err(format!("process {pid} ({}) {why}", running.program));
            let threads: Vec<_> = self
                .stopped()
                .map(|(tid, _)| tid)
                .filter(|tid| self.threads.get(tid) == Some(&pid))
                .collect();
            let Some(&first) = threads.first() else {
                // It waits for the child of a vfork, which is like it.
                match self.threads.values().any(|of| *of == pid) {
                    true => continue,
                    false => return Err(running.has_ended()),
                }
            };
            if threads.iter().any(|&tid| ptrace::is_foreign(tid)) {
                return refused("is a 32-bit program: run a 64-bit build of it");
            }
            let filters = filters_of(first);
            if threads.iter().any(|&tid| filters_of(tid) != filters) {
                return refused(
                    "has threads with different seccomp filters: they cannot get one more",
                );
            }
            // Still loosely (R1).
            if let Some(error) = filters::no_helper(first, false, ptrace::FOLLOW_LOOSELY) {
                return refused(&format!(
                    "is in a sandbox: {error}; attach as root and outside of a container, or run \
                     it without its sandbox"
                ));
            }
        }
        Ok(())
    }

    /// Lets all continue as if nothing had happened. A thread that does not stop in time continues
    /// when this thread ends.
    fn release(&mut self) {
        // The results of their calls can be corrected only while they are stopped.
        let _ = self.wait_until_stopped(Instant::now() + LATE / 5);
        for (tid, event) in self.stopped() {
            if matches!(event, Event::Stop { .. }) {
                let_go(waits::soften(tid, 0, self.seen.get(&tid), &mut None));
            }
            let signal = if let Event::Signal(signal) = event { signal } else { 0 };
            let_go(ptrace::detach(tid, signal));
        }
    }
}

/// Whether a thread is traced by the calling one.
fn is_traced(tid: i32) -> bool {
    let tracer = Status::of(tid).ok().and_then(|status| status.number("TracerPid"));
    tracer == Some(gettid().as_raw_nonzero().get())
}

impl Tracer<'_> {
    /// Takes over processes that were caught; their stops are handled next. Returns how many
    /// processes and threads there are.
    pub(super) fn settle(&mut self, mut caught: Caught) -> (usize, usize) {
        let mut spaces = BTreeMap::<i32, SpaceId>::new();
        for &(process, parent) in &caught.processes {
            let mut threads: Vec<_> = caught
                .threads
                .iter()
                .filter(|(_, of)| **of == process)
                .map(|(tid, _)| *tid)
                .collect();
            // The first of a process names it.
            threads.sort_by_key(|&tid| (tid != process, tid));
            for tid in threads {
                let of = spaces.get(&process).copied().or_else(|| {
                    let same = |parent: &i32| ptrace::share_memory(*parent, process) == Some(true);
                    spaces.get(&parent.filter(same)?).copied()
                });
                let space = match of {
                    Some(space) => {
                        self.spaces.join(space);
                        self.memory.joined(space, tid);
                        space
                    }
                    None => {
                        let space = self.memory.found(tid);
                        self.spaces.add(space);
                        space
                    }
                };
                spaces.insert(process, space);
                if let Some(known) = self.spaces.get_mut(space) {
                    known.unmet += 1;
                }
                let seen = caught.seen.remove(&tid);
                let task = Task { space: Some(space), unmet: true, seen, ..Task::default() };
                self.tasks.insert(tid, task);
            }
        }
        self.queue.extend(caught.events);
        (spaces.len(), caught.threads.len())
    }
}
