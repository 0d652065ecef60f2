//! The birth of a helper in a space whose only thread is stopped: the steps of [`super::steps`] go
//! to its loop in one message, which takes a third of the stops.
//!
//! Only another process that may trace the program could write to the helper's code meanwhile, and
//! it can make the program do whatever that may do. Afterwards the helper must have the code, the
//! filter and the lack of rights that every helper has (helper/H5); otherwise it is ended.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::channel::AT;
use super::events::gone;
use super::steps::{Descriptor, Step};
use crate::sys::arch::LOOP;
use crate::sys::proc::Status;
use crate::sys::{ptrace, remote};

/// A helper that answers later is given up, and how often its stops are looked for until then.
const LATE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);

/// Has it make its calls; returns their results.
///
/// # Errors
/// It was killed, or is frozen: there may be another one later. Or it cannot be a helper.
pub(super) fn make(
    pid: i32,
    socket: &OwnedFd,
    steps: &[Step],
    descriptor: &Descriptor<'_>,
) -> io::Result<Vec<i64>> {
    let results = exchange(pid, socket, steps, descriptor).map_err(|_| gone())?;
    steps.iter().zip(results).map(|(step, result)| step.checked(result)).collect()
}

fn exchange(
    pid: i32,
    socket: &OwnedFd,
    steps: &[Step],
    descriptor: &Descriptor<'_>,
) -> io::Result<Vec<i64>> {
    let calls = steps.iter().map(|step| &step.call);
    let words = calls.flat_map(|call| [call.number].into_iter().chain(call.args));
    let message: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    set_socket_timeout(socket, Timeout::Recv, Some(LOOK))?;
    send(socket, &message, SendFlags::NOSIGNAL)?;
    // Behind the calls, one of which receives it.
    descriptor.send(socket)?;
    let mut bytes = vec![0; steps.len() * size_of::<i64>()];
    let began = Instant::now();
    loop {
        match recv(socket, &mut *bytes, RecvFlags::empty()) {
            Ok((got, _)) if got == bytes.len() => break,
            Ok(_) => return Err(gone()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) if began.elapsed() < LATE => {
                // A signal that cannot be blocked has stopped it.
                match ptrace::wait_now(pid)? {
                    Some(event) if event.is_end() => return Err(gone()),
                    Some(_) => ptrace::cont(pid, 0)?,
                    None => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| i64::from_ne_bytes(*word)).collect())
}

/// Checks that it is what every helper is: under so many filters, without rights, in its loop.
///
/// # Errors
/// It is not, or has ended.
pub(super) fn check(pid: i32, filters: usize) -> io::Result<()> {
    let status = Status::of(pid).map_err(|_| gone())?;
    let has_none = status.field("CapEff").is_some_and(|bits| bits.bytes().all(|bit| bit == b'0'));
    let is_filtered = status.number("Seccomp_filters").is_none_or(|found: usize| found == filters);
    let mut code = [0; LOOP.len()];
    remote::read_forced(pid, AT, &mut code).map_err(|_| gone())?;
    if has_none && is_filtered && code == LOOP {
        return Ok(());
    }
    Err(io::Error::other("its memory was changed while it got a helper"))
}
