//! Threads of this process that wait in a system call, and how to get them out of it.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that interrupts; its handler does nothing.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 2
}

extern "C" fn nothing(_: libc::c_int) {}

/// Installs the handler, once for the process.
fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: all zeros is a valid `sigaction`: no flags (so that calls are not restarted),
        // nothing masked.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        // SAFETY: the handler does nothing, which may be done at any point; the structure lives
        // across the call. The signal is nobody else's.
        unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) };
    });
}

/// A thread that can be interrupted.
#[derive(Debug, Default)]
pub(crate) struct Interruptible(AtomicI32);

impl Interruptible {
    /// Makes the calling thread the one that [`interrupt`](Self::interrupt) means.
    pub(crate) fn enter(&self) {
        install();
        self.0.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
    }

    /// Ends the system call that the thread waits in, which returns `EINTR`. A thread that is
    /// about to begin one is not held off: call again until it is where it should be, with pauses,
    /// for while a thread is being interrupted it does nothing else.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub(crate) fn interrupt(&self) -> io::Result<()> {
        let thread = self.0.load(Ordering::Acquire);
        if thread == 0 {
            return Ok(());
        }
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: sends a signal whose handler does nothing, to a thread of this process or none.
        match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_interrupted() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let waiting = Interruptible::default();
        waiting.interrupt().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                waiting.enter();
                rustix::io::read(&reader, &mut [0_u8; 1])
            });
            while !thread.is_finished() {
                let _ = waiting.interrupt();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert_eq!(thread.join().unwrap(), Err(rustix::io::Errno::INTR));
        });
    }
}
