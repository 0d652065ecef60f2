//! Makes system calls in a thread of the program, unnoticed by it.
//!
//! An injection begins and ends at the kind of stop at which the kernel checks for signals
//! (`Event::Stop`). There a thread that was interrupted in a call holds an internal result of the
//! kernel (such as -ERESTARTSYS), and when it continues with its old registers, the kernel decides
//! whether a signal interrupts the call or the call is restarted: so the program cannot tell
//! whether a call was interrupted for an injection.
//!
//! Invariants:
//! - I1: during an injection, the thread blocks all signals; those that arrive wait. SIGSTOP cannot
//!   be blocked: it is passed on, the group stops, and the injected calls continue nevertheless.
//! - I2: when it ends, registers and signal mask are restored.
//! - I3: events that do not belong to the injection are not lost: they go to the queue of the
//!   tracer. Events of all threads are received, some only at a tick: the end of a process is
//!   reported only after the ends of all its threads were received.
//! - I4: no other call than the one asked for is made, though another thread of the program may
//!   write to the instruction that makes it: each call is compared at its entry.
//! - I5: an injection begins with an instruction outside of the helper's page, which it may have to
//!   unmap, wherever the thread is: a program may jump into that page.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::channel::{AT, CODE_LEN, checked};
use super::events::{Queue, gone, next, park};
use super::restart;
use crate::sys::arch::{Registers, SYSCALL, SYSCALL_ALIGN};
use crate::sys::process;
use crate::sys::procmap::{self, EXECUTE, READ};
use crate::sys::ptrace::{self, Event, SyscallInfo};
use crate::sys::ticks::Ticks;

/// Results of a call that the kernel is about to restart: -ERESTARTSYS down to
/// -ERESTART_RESTARTBLOCK.
const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;
/// Bytes of memory that are searched at once.
const SEARCHED: usize = 64 << 10;
/// Most bytes of a program's memory that are searched for a system call instruction.
const SEARCHED_MAX: usize = 64 << 20;

/// Where the thread is stopped when an injection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// `Event::Stop`.
    Stop,
    /// `Event::Seccomp`: the call will be made, and stop, again.
    Seccomp,
    /// Behind a call: `Event::Syscall`, or `Event::Exec`.
    Behind,
}

/// A thread in which calls are made.
#[derive(Debug)]
pub(crate) struct Injection<'a> {
    tid: i32,
    saved: Registers,
    /// The number of the call that it was about to restart, if that has to be done here.
    taken: Option<u64>,
    mask: u64,
    gadget: usize,
    /// The program's own instruction, with which the injection began.
    first_gadget: usize,
    queue: &'a mut Queue,
    child: i32,
    /// While they exist, its end is noticed ([`next`]).
    _ticks: Option<Ticks>,
}

impl<'a> Injection<'a> {
    /// Begins in a stopped thread. `gadget` is the address of a system call instruction, if one is
    /// known.
    ///
    /// # Errors
    /// `ESRCH` if the thread ends meanwhile; else it is as before.
    pub(crate) fn begin(
        tid: i32,
        at: At,
        gadget: Option<usize>,
        queue: &'a mut Queue,
    ) -> io::Result<Self> {
        let _ticks = process::is_leader(tid).then(Ticks::start).and_then(Result::ok);
        let mut saved = ptrace::registers(tid)?;
        let gadget = match gadget {
            Some(gadget) => gadget,
            None => find_gadget(tid, &saved)?,
        };
        if at == At::Seccomp {
            let mut skipped = saved;
            skipped.skip();
            ptrace::set_registers(tid, &skipped)?;
            saved.rewind();
        }
        if at != At::Stop {
            park(tid, queue)?;
        }
        match at {
            At::Stop => {
                leave_sequence(tid, &mut saved)?;
            }
            At::Seccomp => {}
            At::Behind => saved = ptrace::registers(tid)?,
        }
        let mask = ptrace::signal_mask(tid)?;
        ptrace::set_signal_mask(tid, u64::MAX)?;
        let taken = match at {
            At::Seccomp => None,
            At::Stop | At::Behind => restart::take(tid, &mut saved, queue)?,
        };
        let (first_gadget, child) = (gadget, 0);
        Ok(Self { tid, saved, taken, mask, gadget, first_gadget, queue, child, _ticks })
    }

    /// Uses the instruction at another address from now on.
    pub(crate) fn use_gadget(&mut self, gadget: usize) {
        self.gadget = gadget;
    }

    /// Uses the instruction with which the injection began again.
    pub(crate) fn use_first_gadget(&mut self) {
        self.gadget = self.first_gadget;
    }

    /// Process that the last call made, as this process knows it.
    pub(crate) fn child(&self) -> i32 {
        self.child
    }

    /// Events out of turn.
    pub(crate) fn queue(&mut self) -> &mut Queue {
        self.queue
    }

    /// Makes a system call; returns what it returned, negative error numbers included.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub(crate) fn call(&mut self, number: libc::c_long, args: [u64; 6]) -> io::Result<i64> {
        loop {
            let result = self.attempt(number as u64, &args)?;
            if !RESTART.contains(&result) {
                return Ok(result);
            }
        }
    }

    fn attempt(&mut self, number: u64, args: &[u64; 6]) -> io::Result<i64> {
        let mut registers = self.saved;
        registers.call(self.gadget, number, args);
        ptrace::set_registers(self.tid, &registers)?;
        let mut signal = 0;
        loop {
            ptrace::syscall(self.tid, signal)?;
            signal = 0;
            match next(self.tid, self.queue)? {
                Event::Syscall => match ptrace::syscall_info(self.tid)? {
                    SyscallInfo::Exit(result) => return Ok(result),
                    SyscallInfo::Entry(call) if (call.number, &call.args) != (number, args) => {
                        restart::skip(self.tid)?;
                        return Err(io::Error::other(
                            "its code changed while a call was made in it",
                        ));
                    }
                    _ => {}
                },
                Event::Child => self.child = ptrace::message(self.tid)?,
                Event::Signal(stopping) => signal = stopping,
                _ => {}
            }
        }
    }

    /// Writes to memory of the thread that can be written to.
    ///
    /// # Errors
    /// Nothing is mapped there, or the thread is gone.
    pub(crate) fn put(&self, to: usize, bytes: &[u8]) -> io::Result<()> {
        // Neither way waits for a page of a userfaultfd; the second also works for a process whose
        // memory may not be read.
        if let Ok(memory) = fs::File::options().write(true).open(format!("/proc/{}/mem", self.tid))
        {
            return memory.write_all_at(bytes, to as u64);
        }
        for (index, part) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            ptrace::poke(self.tid, to + 8 * index, u64::from_ne_bytes(word))?;
        }
        Ok(())
    }

    /// Makes a system call; its error is one of this program, which says what failed.
    ///
    /// # Errors
    /// That of the call, or that the thread has ended.
    pub(crate) fn one(
        &mut self,
        what: &str,
        number: libc::c_long,
        args: [u64; 6],
    ) -> io::Result<i64> {
        checked(what, self.call(number, args)?)
    }

    /// Ends it, but lets the thread continue with `code`, with all signals blocked. For threads
    /// that do not belong to the program.
    pub(crate) fn become_code(self, code: usize, parameter: usize) -> io::Result<()> {
        park(self.tid, self.queue)?;
        let mut registers = self.saved;
        registers.enter(code, parameter);
        ptrace::set_registers(self.tid, &registers)?;
        ptrace::cont(self.tid, 0)
    }

    /// The thread in which calls are made.
    pub(crate) fn tid(&self) -> i32 {
        self.tid
    }

    /// Ends it; the thread is stopped as the returned event says.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub(crate) fn finish(self) -> io::Result<Event> {
        let mut stop = park(self.tid, self.queue)?;
        ptrace::set_registers(self.tid, &self.saved)?;
        if let Some(taken) = self.taken {
            stop = restart::begin(self.tid, taken, &self.saved, stop, self.queue)?;
        }
        ptrace::set_signal_mask(self.tid, self.mask)?;
        Ok(stop)
    }
}

/// A restartable sequence in which a thread was stopped is aborted, as after any preemption: the
/// kernel, which would find the thread at another instruction, would not abort it.
///
/// # Errors
/// `ESRCH` if its area is not present, so that this cannot be known: the thread is unchanged.
fn leave_sequence(tid: i32, registers: &mut Registers) -> io::Result<()> {
    if registers.number().is_none()
        && let Some(abort) = restartable_abort(tid, registers.instruction())?
    {
        registers.jump(abort);
    }
    Ok(())
}

/// Where a restartable sequence that is left at `instruction` continues; `None` outside of one.
fn restartable_abort(tid: i32, instruction: usize) -> io::Result<Option<usize>> {
    /// Offset of the pointer to the sequence in the area that a thread registers.
    const SEQUENCE: usize = 8;
    let Some(area) = ptrace::restartable(tid) else { return Ok(None) };
    let mut sequence = [0; 8];
    ptrace::read(tid, area + SEQUENCE, &mut sequence).map_err(|_| gone())?;
    let sequence = usize::from_ne_bytes(sequence);
    // Version and flags, start, length, abort address.
    let mut words = [0; 32];
    if sequence == 0 || ptrace::read(tid, sequence, &mut words).is_err() {
        return Ok(None);
    }
    let word = |index: usize| usize::from_ne_bytes(words.as_chunks::<8>().0[index]);
    let is_inside = (word(1)..word(1).saturating_add(word(2))).contains(&instruction);
    Ok(is_inside.then(|| word(3)))
}

/// Finds a system call instruction: the one just executed, or any in executable memory, the
/// kernel's own page first; none in the helper's page (I5).
fn find_gadget(tid: i32, registers: &Registers) -> io::Result<usize> {
    let before = registers.instruction().wrapping_sub(SYSCALL.len());
    let page = AT..AT + CODE_LEN;
    for candidate in [before, registers.instruction()] {
        if page.contains(&candidate) {
            continue;
        }
        let mut bytes = [0; SYSCALL.len()];
        if ptrace::read(tid, candidate, &mut bytes).is_ok() && bytes == SYSCALL {
            return Ok(candidate);
        }
    }
    let maps = fs::read_to_string(format!("/proc/{tid}/maps"))?;
    let (kernel, others): (Vec<_>, Vec<_>) = maps
        .lines()
        .filter_map(procmap::parse)
        .filter(|vma| vma.protection == READ | EXECUTE)
        .filter(|vma| vma.range.end <= page.start || page.end <= vma.range.start)
        .partition(|vma| vma.name == "[vdso]");
    let mut left = SEARCHED_MAX;
    let found = kernel.into_iter().chain(others).find_map(|vma| search(tid, vma.range, &mut left));
    found.ok_or_else(|| io::Error::other("no system call instruction was found in the program"))
}

fn search(tid: i32, Range { start: mut at, end }: Range<usize>, left: &mut usize) -> Option<usize> {
    let mut buffer = vec![0; SEARCHED];
    // Unlike process_vm_readv, it does not wait for a page of a userfaultfd.
    let memory = fs::File::open(format!("/proc/{tid}/mem")).ok()?;
    while at < end && *left > 0 {
        let wanted = (end - at).min(SEARCHED);
        let got = memory.read_at(&mut buffer[..wanted], at as u64).ok().filter(|&got| got > 0)?;
        let mut places = buffer[..got].windows(SYSCALL.len()).step_by(SYSCALL_ALIGN);
        if let Some(place) = places.position(|bytes| bytes == SYSCALL) {
            return Some(at + place * SYSCALL_ALIGN);
        }
        at += wanted;
        *left = left.saturating_sub(wanted);
    }
    None
}
