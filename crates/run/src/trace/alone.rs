//! The birth of a helper in a space whose only thread is stopped: the steps of [`super::steps`] go
//! to its loop in one message, which takes a third of the stops.
//!
//! Only another process that may trace the program could write to the helper's code meanwhile, and
//! it can make the program do whatever that may do. Afterwards the helper must have the code, the
//! filter and the lack of rights that every helper has (helper/H5); otherwise it is ended.

use std::io;
use std::time::{Duration, Instant};

use super::channel::{AT, Channel};
use super::events::gone;
use super::steps::{Descriptor, Step};
use crate::sys::arch::LOOP;
use crate::sys::proc::Status;
use crate::sys::{ptrace, remote};

/// A helper that answers later is given up.
const LATE: Duration = Duration::from_secs(2);

/// Has it make its calls; returns their results.
///
/// # Errors
/// It was killed, or is frozen: there may be another one later. Or it cannot be a helper.
pub(super) fn make(
    channel: &mut Channel,
    steps: &[Step],
    descriptor: &Descriptor<'_>,
) -> io::Result<Vec<i64>> {
    let mut results = vec![0; steps.len()];
    exchange(channel, steps, descriptor, &mut results).map_err(|_| gone())?;
    steps.iter().zip(results).map(|(step, result)| step.checked(result)).collect()
}

fn exchange(
    channel: &mut Channel,
    steps: &[Step],
    descriptor: &Descriptor<'_>,
    results: &mut [i64],
) -> io::Result<()> {
    let calls: Vec<_> = steps.iter().map(|step| step.call).collect();
    let (pid, began) = (channel.pid, Instant::now());
    channel.send(&calls)?;
    // Behind the calls, one of which receives it.
    descriptor.send(&channel.socket)?;
    channel.receive(results, || match ptrace::wait_now(pid)? {
        _ if began.elapsed() >= LATE => Err(gone()),
        Some(event) if event.is_end() => Err(gone()),
        // A signal that cannot be blocked has stopped it.
        Some(_) => ptrace::cont(pid, 0),
        None => Ok(()),
    })
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
