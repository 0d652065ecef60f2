//! How a tracer begins: with a program that it starts, or with processes that run already.

use std::collections::{HashMap, HashSet};
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::caught::catch;
use super::events::Queue;
use super::helper;
use super::task::{Spaces, Task};
use super::{Handle, Tell, Tracer, filters};
use crate::link::Memory;
use crate::options::{Event, RunError};
use crate::permission::Access;
use crate::running::Running;
use crate::sys::pids::Pids;
use crate::sys::proc;
use crate::sys::process::{self, ChildrenKept, Program};
use crate::sys::ptrace;
use crate::sys::urgency::be_urgent;

/// Runs a program and all its children to their end, under `memory`. `tell` gets the beginning and
/// the end of the main process at once, unless it never began; the call returns when the last child
/// has ended.
///
/// # Errors
/// If the program cannot be traced, or with the message of [`Tracing::end`]; nothing of the tree
/// runs then.
///
/// [`Tracing::end`]: crate::link::Tracing::end
pub(crate) fn trace(
    program: &Program,
    memory: Arc<dyn Memory>,
    handle: &Handle,
    access: Access,
    tell: Tell<'_>,
) -> Result<ExitStatus, RunError> {
    let _children = ChildrenKept::new();
    // Orphans, including helpers of processes that have ended, come here instead of to an init that
    // may not reap them.
    process::adopt_orphans()?;
    let waiting = process::start(program)?;
    let main = waiting.pid;
    if program.is_first_to_end {
        // Otherwise the kernel takes the largest, which may be this process.
        let _ = proc::end_before_this(main);
    }
    ptrace::seize(main, ptrace::FOLLOW)?;
    let mut tracer = Tracer::new(memory, handle, access, tell);
    tracer.main = main;
    tracer.tasks.insert(main, Task::default());
    // Not the program, which exists by now, but the bell.
    be_urgent();
    tracer.hang_bell()?;
    waiting.go()?;
    tracer.outcome = Some(waiting);
    process::raise_descriptors();
    let result = tracer.run();
    tracer.take_bell_down();
    result
}

/// Follows processes that already run, and all their descendants, to their end, under `memory`.
/// `tell` is called when all of them are traced.
///
/// # Errors
/// [`RunError::Refused`]: they are unchanged. Otherwise they were ended, or the system refuses
/// something.
///
/// # Cost
/// Each of their threads is stopped until all of them are, usually for a few milliseconds: none of
/// them runs then.
pub(crate) fn trace_running(
    asked: &[Running],
    memory: Arc<dyn Memory>,
    handle: &Handle,
    access: Access,
    tell: Tell<'_>,
) -> Result<ExitStatus, RunError> {
    let _children = ChildrenKept::new();
    filters::trace_strangers();
    be_urgent();
    process::raise_descriptors();
    let mut tracer = Tracer::new(memory, handle, access, tell);
    // None of them is the main process, whose end would be that of the program.
    tracer.exit = Some(Ok(ExitStatus::default()));
    tracer.hang_bell()?;
    let result = catch(asked).map_err(RunError::Refused).and_then(|caught| {
        let (processes, threads) = tracer.settle(caught);
        (tracer.tell)(Some(Event::Caught { processes, threads }));
        tracer.run()
    });
    tracer.take_bell_down();
    result
}

impl<'a> Tracer<'a> {
    /// One that knows of no process.
    pub(super) fn new(
        memory: Arc<dyn Memory>,
        handle: &'a Handle,
        access: Access,
        tell: Tell<'a>,
    ) -> Self {
        Self {
            memory,
            handle,
            access,
            tell,
            traces_itself: false,
            main: 0,
            exit: None,
            is_stopped: false,
            ended: None,
            kills: false,
            outcome: None,
            bell: 0,
            tasks: HashMap::new(),
            spaces: Spaces::default(),
            helpers: HashMap::new(),
            buried: HashSet::new(),
            unclaimed: HashSet::new(),
            stillborn: HashSet::new(),
            visits: HashSet::new(),
            lost_forks: 0,
            pids: Pids::new(),
            told_few: false,
            turns: 0,
            queue: Queue::new(),
        }
    }

    fn hang_bell(&mut self) -> io::Result<()> {
        let bell = process::start_bell()?;
        self.bell = bell.pid;
        ptrace::seize(self.bell, ptrace::FOLLOW)?;
        drop(bell);
        let pid = Pid::from_raw(self.bell).expect("not 0");
        let bell = pidfd_open(pid, PidfdFlags::empty())?;
        self.handle.lock().bell = Some(bell);
        Ok(())
    }

    fn take_bell_down(&mut self) {
        self.handle.lock().bell = None;
        process::kill(self.bell);
        helper::wait_for_end(self.bell, &mut self.queue);
    }
}
