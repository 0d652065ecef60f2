//! The threads of a memory, which evict, bring pages in ahead of sequences, and resolve faults if
//! that is left to threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::core::Core;
use super::evict::Progress;
use super::fault::resolve;
use crate::sys::map::Mapping;
use crate::sys::signal::Blocked;
use zfold_uffd::Event;
use zfold_uffd::page::page_len;

/// Most threads that compress, and that resolve faults; as many as there are CPUs.
const THREADS_MAX: usize = 4;

/// The threads, and what ends them.
#[derive(Debug)]
pub(super) struct Workers {
    threads: Vec<JoinHandle<()>>,
    /// A page for each reader; a touch of it tells the reader to end.
    bells: Option<Mapping>,
}

impl Workers {
    /// Starts the threads that evict and, if `readers`, those that resolve faults.
    ///
    /// # Errors
    /// The system's, if a thread cannot be started. Threads that were started are ended by `stop`.
    pub(super) fn start(core: &Arc<Core>, readers: bool) -> io::Result<Self> {
        let mut this = Self { threads: Vec::new(), bells: None };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cpus.min(THREADS_MAX) {
            let core = Arc::clone(core);
            this.spawn("zfold-evict", move || evict(&core))?;
        }
        if readers {
            this.start_readers(core)?;
        }
        Ok(this)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned());
        // A signal handler that runs here and touches a region would wait for this thread.
        let _blocked = Blocked::new();
        let thread = thread.spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// A thread for each CPU, bound to it: then the woken thread is on the CPU of the touching
    /// thread, which is the fastest wake-up.
    fn start_readers(&mut self, core: &Arc<Core>) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        let cpus = &cpus[..cpus.len().min(THREADS_MAX)];
        let bells = Mapping::managed(cpus.len().max(1) * page_len())?;
        core.frames.adopt(&bells)?;
        let range = bells.range(0..bells.len() / page_len());
        self.bells = Some(bells);
        for &cpu in cpus {
            let (core, bells) = (Arc::clone(core), range.clone());
            self.spawn("zfold-fault", move || {
                let mut own = CpuSet::new();
                own.set(cpu);
                // On another CPU it works, too.
                let _ = sched_setaffinity(None, &own);
                read(&core, &bells);
            })?;
        }
        Ok(())
    }

    /// Ends all threads.
    pub(super) fn stop(&mut self, core: &Core) {
        core.stop.store(true, Ordering::SeqCst);
        core.room.call_all();
        if let Some(bells) = self.bells.take() {
            for page in 0..bells.len() / page_len() {
                bells.touch(page);
            }
        }
        for thread in self.threads.drain(..) {
            core.room.call_all();
            // A panic there was reported.
            let _ = thread.join();
        }
    }

    /// Forgets the threads, which a forked child does not have.
    pub(super) fn abandon(&mut self) {
        self.threads.clear();
        self.bells = None;
    }
}

fn evict(core: &Core) {
    let mut seen = Progress::new();
    while !core.stop.load(Ordering::SeqCst) {
        core.trim_copies();
        let ahead = core.bring_ahead_of_any();
        let wanted = core.room.is_below_high() || core.room.is_waited_for();
        if wanted && core.evict(&mut seen) || ahead {
            continue;
        }
        if !wanted {
            // No thread waits, so the time without progress begins anew.
            seen = Progress::new();
        }
        // If there was nothing to do although room is wanted, others are working on it, or nothing
        // can leave.
        let look = || {
            let stops = core.stop.load(Ordering::SeqCst);
            stops || (!wanted && core.room.is_low()) || !core.ahead.is_empty()
        };
        core.room.await_work(look);
    }
}

/// Resolves faults until a bell rings.
fn read(core: &Core, bells: &std::ops::Range<usize>) {
    let mut events = Vec::with_capacity(1);
    loop {
        events.clear();
        let read = core.frames.uffd().read(&mut events, 1);
        let (address, writes) = match events.first() {
            Some(&Event::Missing { address, writes, .. }) => (address, writes),
            Some(&Event::Protected { address }) => (address, true),
            _ => continue,
        };
        if !matches!(read, Ok(1)) {
            continue;
        }
        if bells.contains(&address) {
            core.frames.put(address & !(page_len() - 1), core.zeros.pages(1), false);
            return;
        }
        if !resolve(address, Some(writes)) {
            // The region is gone: a thread that touches the address sees what is mapped there now.
            core.frames.wake(address & !(page_len() - 1));
        }
    }
}
