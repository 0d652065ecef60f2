//! The birth of a helper: what it drops and receives before it runs its loop.
//!
//! Until then it has the rights of the program, and no filter applies. So the tracer makes each
//! call and compares it at its entry (inject/I4): the program can write to all memory here, but its
//! code is executed in this process only under the filter that the last step installs, and under
//! the program's own. Where no thread of the program runs, the loop makes the calls ([`alone`]).

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::alone;
use super::channel::{AT, CALLS, Channel, because};
use super::events::{Queue, next};
use super::inject::{At, Injection};
use super::steps::{self, Descriptor, Step};
use crate::link::Call;
use crate::permission::features;
use crate::sys::ptrace::{self, Event};
use zfold_uffd::Uffd;

/// What a born helper has.
pub(super) struct Born {
    pub channel: Channel,
    /// If it has opened one.
    pub uffd: Option<Uffd>,
    /// Its stagings for memory of other protections.
    pub others: Vec<(u8, Range<usize>)>,
}

/// A process that was cloned to become a helper, stopped.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    injection: Injection<'a>,
    pid: i32,
    /// The manager's end of its socket; the other is its number 0.
    channel: Channel,
}

impl<'a> Birth<'a> {
    /// Begins in a process that has just been cloned, with the system call instruction at `gadget`:
    /// it closes the descriptors of the program, and has a socket.
    ///
    /// # Errors
    /// It has ended, or cannot be a helper.
    pub(super) fn begin(pid: i32, gadget: usize, queue: &'a mut Queue) -> io::Result<Self> {
        wait_for_birth(pid, queue)?;
        let mut injection = Injection::begin(pid, At::Stop, Some(gadget), queue)?;
        let all = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        injection.one("close_range in the helper", libc::SYS_close_range, all)?;
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        let pair = [libc::AF_UNIX as u64, kind, 0, CALLS as u64, 0, 0];
        injection.one("socketpair in the helper", libc::SYS_socketpair, pair)?;
        let socket = because("taking the helper's socket", take(pid, 1))?;
        Ok(Self { injection, pid, channel: Channel::new(pid, socket)? })
    }

    /// Makes the steps to its loop, where it is from then on; its own memory ends at `end`. In one
    /// message where it is `alone` with a stopped thread that has so many filters.
    ///
    /// # Errors
    /// It has ended, or cannot be a helper.
    pub(super) fn finish(
        mut self,
        end: usize,
        descriptor: &Descriptor<'_>,
        alone: Option<usize>,
    ) -> io::Result<Born> {
        let pid = self.pid;
        let (steps, stagings) = steps::all(end, descriptor);
        let results = match alone {
            None => {
                descriptor.send(&self.channel.socket)?;
                let results = self.make(&steps)?;
                // From here on the program's filters apply, too.
                ptrace::set_options(pid, ptrace::FOLLOW)?;
                self.injection.become_code(AT, CALLS)?;
                results
            }
            Some(filters) => {
                steps.iter().try_for_each(|step| step.prepare(&self.injection))?;
                self.injection.become_code(AT, CALLS)?;
                let results = alone::make(&mut self.channel, &steps, descriptor)?;
                alone::check(pid, filters + 1)?;
                results
            }
        };
        let uffd = match descriptor {
            Descriptor::Open(_) => Some(taken(pid)?),
            Descriptor::Given(_) => None,
        };
        let made = |index: usize| results[stagings.start + index] == 0;
        let others = steps::others(end).enumerate();
        let others = others.filter(|&(index, _)| made(index)).map(|(_, other)| other).collect();
        Ok(Born { channel: self.channel, uffd, others })
    }

    /// Makes steps one by one, and compares each at its entry; returns their results.
    fn make(&mut self, steps: &[Step]) -> io::Result<Vec<i64>> {
        let mut results = Vec::new();
        for step in steps {
            step.prepare(&self.injection)?;
            let Call { number, args } = step.call;
            let result = self.injection.call(number as libc::c_long, args)?;
            results.push(step.checked(result)?);
        }
        Ok(results)
    }
}

/// Takes a copy of the userfaultfd of a helper.
///
/// # Errors
/// It has ended, or has another file there.
fn taken(pid: i32) -> io::Result<Uffd> {
    let taken = because("taking userfaultfd", take(pid, Call::NUMBER as i32))?;
    // A file that answers like one may have been made by the program.
    let other = |_| io::Error::other("the helper shows another file for userfaultfd");
    let uffd = Uffd::from_fd(taken).map_err(other)?;
    because("userfaultfd", uffd.handshake(features()))?;
    Ok(uffd)
}

/// A copy of a descriptor of a helper, which is traced, so that its number cannot be reused.
fn take(pid: i32, number: i32) -> io::Result<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid).expect("not 0"), PidfdFlags::empty())?;
    Ok(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?)
}

/// Waits until a new process stops before it runs.
fn wait_for_birth(pid: i32, queue: &mut Queue) -> io::Result<()> {
    loop {
        match next(pid, queue)? {
            Event::Stop { .. } => return Ok(()),
            _ => ptrace::cont(pid, 0)?,
        }
    }
}
