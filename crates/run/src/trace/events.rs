//! Events of stopped threads while the tracer waits for those of one of them.

use std::collections::VecDeque;
use std::io;

use crate::sys::ptrace::{self, Event};
use crate::sys::{process, ticks};

/// Events that were received out of turn.
pub(crate) type Queue = VecDeque<(i32, Event)>;

/// The thread is no longer there.
pub(super) fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// Waits for the next event of a thread; its end is queued and is an error here, and events of
/// others are queued (inject/I3). It is also an error if the thread is the first of its process,
/// has ended, and will be reported only after others, whose events may be in the queue; finding
/// that out takes a [tick](ticks). While there are ticks, the events of others are received at
/// these: the kernel finds one of any thread the later the more there are.
pub(super) fn next(tid: i32, queue: &mut Queue) -> io::Result<Event> {
    let queued = queue.iter().position(|(queued, _)| *queued == tid);
    let event = match queued {
        Some(at) => queue.remove(at).expect("found just now").1,
        None => wait_for(tid, queue)?,
    };
    match event {
        Event::Ended(_) | Event::Exec | Event::Ending => {
            queue.push_back((tid, event));
            Err(gone())
        }
        event => Ok(event),
    }
}

/// Waits for the next event of a thread, and queues those of others.
fn wait_for(tid: i32, queue: &mut Queue) -> io::Result<Event> {
    let of = if ticks::are_running() { tid } else { 0 };
    loop {
        match ptrace::wait_or_tick(of) {
            Ok(Some((found, event))) if found == tid => return Ok(event),
            Ok(Some(other)) => queue.push_back(other),
            Ok(None) => {
                while let Some((found, event)) = ptrace::poll()? {
                    if found == tid {
                        return Ok(event);
                    }
                    queue.push_back((found, event));
                }
                if process::has_lost_first(tid) {
                    return Err(gone());
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Err(gone()),
            Err(error) => return Err(error),
        }
    }
}

/// Brings a stopped thread to the kind of stop where injections begin and end.
pub(super) fn park(tid: i32, queue: &mut Queue) -> io::Result<Event> {
    ptrace::interrupt(tid)?;
    let mut signal = 0;
    loop {
        ptrace::cont(tid, signal)?;
        match next(tid, queue)? {
            stop @ Event::Stop { .. } => return Ok(stop),
            Event::Signal(stopping) => signal = stopping,
            _ => signal = 0,
        }
    }
}
