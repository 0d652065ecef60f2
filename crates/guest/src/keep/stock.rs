//! The stock: a copy of a server's memory, which waits until a server is needed.
//!
//! The channel of a stock, and of a server that it makes, is its standard input, too: so a copy
//! closes its predecessor's by putting its own there, and all others by their numbers.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::stdio::dup2_stdin;

use super::channel::{Channel, ToFront};
use super::link::Link;
use crate::images::Images;

/// How long a copy may take to start a thread, and how many copies are tried.
const PATIENCE: Duration = Duration::from_secs(1);
const TRIES: usize = 8;

/// Makes a new stock of the images as they are now. Servers that it makes call `serve` with their
/// end of a channel, for [`Link::start`], and end with the status that it returns.
///
/// # Errors
/// There is no process or no descriptor for it, or in none of several copies a thread starts.
pub fn renew(images: &Arc<Images>, link: &Link, serve: &dyn Fn(OwnedFd) -> u8) -> io::Result<()> {
    let _one = link.renewing.lock();
    // SAFETY: the disposition of a signal that has no handler here; nothing waits for children that
    // end.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    for _ in 0..TRIES {
        let (ours, theirs) = Channel::pair()?;
        let quiet = io::stderr().lock();
        // SAFETY: the child has only this thread. It uses the images, which no thread is within
        // (H6), what the C library and this one guard across a fork, and what `quiet` guards.
        let child = images.standing_still(|| unsafe { libc::fork() });
        let error = io::Error::last_os_error();
        drop(quiet);
        match child {
            0 => wait(ours, images, serve),
            -1 => return Err(error),
            _ => drop(ours),
        }
        if theirs.receive::<()>().is_some() {
            return Ok(link.channel.send(&ToFront::Stock, &[theirs.as_fd()])?);
        }
    }
    Err(io::Error::other("no copy of this process can start a thread"))
}

/// Returns whether threads start here: in a copy they never do if another thread was just starting
/// or ending, with a lock of the standard library that nobody can release here (H6).
fn starts_threads() -> bool {
    let (done, is_done) = mpsc::channel();
    let Ok(thread) = thread::Builder::new().spawn(move || done.send(())) else { return false };
    is_done.recv_timeout(PATIENCE).is_ok() && thread.join().is_ok()
}

/// Waits in a process of its own until a server is needed; the process ends with its channel.
fn wait(channel: Channel, images: &Arc<Images>, serve: &dyn Fn(OwnedFd) -> u8) -> ! {
    let waited = catch_unwind(AssertUnwindSafe(|| {
        let channel = alone(channel, images.descriptor())?;
        images.forget_others();
        if !starts_threads() {
            return Ok(1);
        }
        channel.send(&(), &[])?;
        // It is told nothing but to make one.
        while let Some(((), fds)) = channel.receive() {
            let Some(to_front) = fds.into_iter().next() else { continue };
            // SAFETY: this process has one thread; the one that was tried has ended.
            match unsafe { libc::fork() } {
                0 => {
                    dup2_stdin(&to_front)?;
                    drop(channel);
                    return Ok(serve(to_front));
                }
                // The front sees that the other end is closed.
                -1 => {}
                _ => {}
            }
        }
        io::Result::Ok(0)
    }));
    let status = waited.map_or(101, |status| status.unwrap_or(1));
    // It is not buffered.
    let _ = io::stderr().flush();
    // SAFETY: ends this process, which has nothing left to do; what the frames above own belongs to
    // another process.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Closes all descriptors but the standard ones, that of the images' backing, and this one, which
/// takes the place of standard input.
fn alone(channel: Channel, backing: Option<BorrowedFd<'_>>) -> io::Result<Channel> {
    dup2_stdin(&channel)?;
    // Its number is closed below.
    let _ = channel.into_fd().into_raw_fd();
    let kept = backing.map_or(2, |backing| backing.as_raw_fd() as libc::c_uint);
    for (first, last) in [(3, kept.saturating_sub(1)), (kept + 1, libc::c_uint::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: this process has one thread, and uses none of these descriptors from here on
        // (H6).
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if closed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Channel::new(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?))
}
