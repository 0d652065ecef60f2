//! Bounded waits of the tracer: they end at ticks of a timer that signals it.
//!
//! The awaited thread may itself wait for the tracer:
//! - The end of a killed process's first thread is reported when all other threads have ended, and
//!   traced ones wait for the tracer at their ends. So [`ptrace::wait_or_tick`] returns at each
//!   tick of [`Ticks`], so that the caller can check for them.
//! - `PTRACE_SEIZE` waits for an exec in the process to be over, which waits for the ends of its
//!   other threads. So the handler of the signal receives events in the meantime, in the same
//!   thread, as the kernel requires; the kernel restarts the call after it ([`Seizer`]).
//!
//! Invariants:
//! - Z1: the handler makes system calls, keeps `errno`, and touches only cells that exist already
//!   and that no other code touches during `PTRACE_SEIZE`.
//! - Z2: the timer exists only during these waits, so that the signal interrupts nothing else.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;

use rustix::thread::gettid;

use super::inherited::{blocked, set_mask};
use super::ptrace::{self, Event};

/// Time between two ticks, in nanoseconds.
const TICK: libc::c_long = 2_000_000;

/// Events that the handler has received, as many as there is room for; others wait for the next
/// call.
#[derive(Debug, Default)]
struct Received {
    events: Vec<Cell<Option<(i32, Event)>>>,
    len: Cell<usize>,
}

thread_local! {
    /// Where the handler puts what it receives in this thread.
    static RECEIVED: Cell<*const Received> = const { Cell::new(ptr::null()) };
    /// How many timers signal this thread.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether a timer signals the calling thread, so that a wait for one event ends at a tick.
pub(crate) fn are_running() -> bool {
    RUNNING.get() > 0
}

/// Returns the next event of any thread that the calling thread traces, as [`ptrace::poll`] does. A
/// thread that is about to end is let go, once: at the next event its number may have been reused.
pub(crate) fn receive_letting_end() -> io::Result<Option<(i32, Event)>> {
    let received = ptrace::poll()?;
    if let Some((tid, Event::Ending)) = received {
        // It may be gone already.
        let _ = ptrace::cont(tid, 0);
    }
    Ok(received)
}

/// Receives what there is.
extern "C" fn receive(_: libc::c_int) {
    // SAFETY: null, or as `seize` has set it, which is in its call as long as it is set (Z1).
    let Some(received) = (unsafe { RECEIVED.get().as_ref() }) else { return };
    // SAFETY: always a valid place, of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: same as above.
    let before = unsafe { *errno };
    while let Some(cell) = received.events.get(received.len.get())
        && let Ok(Some(event)) = receive_letting_end()
    {
        cell.set(Some(event));
        received.len.set(received.len.get() + 1);
    }
    // SAFETY: same as above.
    unsafe { *errno = before };
}

/// The signal of the timer. It says otherwise that a write went beyond `ulimit -f`, which fails
/// with `EFBIG` where it is handled. It is not among those that a run passes on.
fn signal() -> libc::c_int {
    libc::SIGXFSZ
}

/// Has the signal handled, once for the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the structure is plain integers and pointers.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = receive as extern "C" fn(libc::c_int) as usize;
        // SAFETY: the handler is as Z1 says; the signal is used for nothing else here.
        unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
    });
}

/// A timer that signals the calling thread, as long as it lives (Z2).
#[derive(Debug)]
pub(crate) struct Ticks(libc::timer_t);

impl Ticks {
    /// Starts the timer.
    ///
    /// # Errors
    /// The user has reached the limit of queued signals.
    pub(crate) fn start() -> io::Result<Self> {
        install();
        set_mask(blocked() & !(1 << (signal() - 1)));
        // SAFETY: the structure is plain integers and pointers.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = gettid().as_raw_nonzero().get();
        let mut timer = MaybeUninit::uninit();
        // SAFETY: the kernel reads the event and writes the timer, both of which live across it.
        let made = unsafe {
            libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr())
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: written by the call that succeeded.
        let timer = Self(unsafe { timer.assume_init() });
        let every = libc::timespec { tv_sec: 0, tv_nsec: TICK };
        let spec = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: a timer of this process, and a structure that lives across the call.
        unsafe { libc::timer_settime(timer.0, 0, &raw const spec, ptr::null_mut()) };
        RUNNING.set(RUNNING.get() + 1);
        Ok(timer)
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: made in `start`, deleted here only.
        unsafe { libc::timer_delete(self.0) };
        RUNNING.set(RUNNING.get() - 1);
    }
}

/// Seizes threads.
#[derive(Debug, Default)]
pub(crate) struct Seizer {
    received: Received,
}

impl Seizer {
    /// Seizes a thread as [`ptrace::seize`] does. `meanwhile` gets the events that came before it
    /// returned, `room` of them at most; threads that were about to end were let go.
    pub(crate) fn seize(
        &mut self,
        tid: i32,
        options: libc::c_int,
        room: usize,
        meanwhile: &mut Vec<(i32, Event)>,
    ) -> io::Result<()> {
        let Self { received } = self;
        if received.events.len() < room {
            received.events.resize_with(2 * room, Cell::default);
        }
        RECEIVED.set(&raw const *received);
        let seized = Ticks::start().and_then(|_ticks| ptrace::seize(tid, options));
        RECEIVED.set(ptr::null());
        let received = &received.events[..received.len.replace(0)];
        meanwhile.extend(received.iter().filter_map(Cell::take));
        seized
    }
}
