//! Threads that ran before they were traced: finds out what the tracer would know had it seen their
//! birth.
//!
//! Only the thread itself can ask where the kernel writes when it ends (`CLONE_CHILD_CLEARTID`). It
//! does so at its first stop, and no space is attached before all its threads have (T9): until then
//! no page is away. Its list of robust mutexes is read at its end, as for any thread.

use std::io;

use super::filters::suspend_filters;
use super::inject::{At, Injection};
use super::{Tracer, let_go};
use crate::link::SpaceId;
use crate::sys::process::GET_TID_ADDRESS;
use crate::sys::ptrace::{self, Event};
use zfold_uffd::page::page_len;

impl Tracer<'_> {
    /// A thread that was not met stops for another reason, which may have cancelled the request to
    /// stop: it is asked again (caught/R5).
    pub(super) fn ask_again(&self, tid: i32) {
        if self.tasks.get(&tid).is_some_and(|task| task.unmet) {
            let_go(ptrace::interrupt(tid));
        }
    }

    /// Meets a stopped thread, unless it was met before. Returns how it is stopped now; `None` if
    /// it has ended.
    pub(super) fn meet(&mut self, tid: i32, event: Event) -> Option<Event> {
        let task = self.tasks.get(&tid).filter(|task| task.unmet);
        let Some(space) = task.and_then(|task| task.space) else { return Some(event) };
        // A thread that did not stop in time still continues without a tracer.
        let_go(ptrace::set_options(tid, ptrace::FOLLOW));
        match self.ask_number(tid) {
            Ok((Ok(at), stop)) => {
                self.met(tid, space, at);
                Some(stop)
            }
            Ok((Err(error), stop)) => self.not_met(tid, space, &error, stop),
            Err(_) if self.is_queued(tid) => None,
            Err(error) => self.not_met(tid, space, &error, event),
        }
    }

    fn met(&mut self, tid: i32, space: SpaceId, tid_at: Option<usize>) {
        let task = self.tasks.get_mut(&tid).filter(|task| task.unmet);
        if let Some((task, space)) = task.zip(self.spaces.get_mut(space)) {
            (task.unmet, task.tid_at) = (false, tid_at);
            space.unmet -= 1;
        }
    }

    fn not_met(&mut self, tid: i32, space: SpaceId, why: &io::Error, stop: Event) -> Option<Event> {
        if self.is_queued(tid) {
            return None;
        }
        self.met(tid, space, None);
        self.refuse(space, why.to_string());
        Some(stop)
    }

    /// Asks a stopped thread where its number is; also returns how it is stopped now. The outer
    /// error means that it is stopped as before, or has ended.
    fn ask_number(&mut self, tid: i32) -> io::Result<(io::Result<Option<usize>>, Event)> {
        if ptrace::is_foreign(tid) {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let unfiltered = suspend_filters(tid, false)?;
        let mut injection = Injection::begin(tid, At::Stop, None, &mut self.queue)?;
        let at = number_at(&mut injection);
        let stop = injection.finish();
        if unfiltered {
            let_go(ptrace::set_options(tid, ptrace::FOLLOW));
        }
        Ok((at, stop?))
    }
}

/// Returns the address of a thread's number, which the thread writes to a temporary page.
fn number_at(injection: &mut Injection<'_>) -> io::Result<Option<usize>> {
    let (len, access) = (page_len() as u64, (libc::PROT_READ | libc::PROT_WRITE) as u64);
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let page = [0, len, access, flags, u64::MAX, 0];
    let page = injection.one("its address space has no room", libc::SYS_mmap, page)? as u64;
    let ask = [GET_TID_ADDRESS as u64, page, 0, 0, 0, 0];
    let told = injection.one("its thread numbers cannot be found", libc::SYS_prctl, ask);
    let mut word = [0; 8];
    let read = told.and_then(|_| ptrace::read(injection.tid(), page as usize, &mut word));
    injection.call(libc::SYS_munmap, [page, len, 0, 0, 0, 0])?;
    read.map(|()| Some(usize::from_ne_bytes(word)).filter(|&at| at != 0))
}
