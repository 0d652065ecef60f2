//! `SIGBUS`, which the kernel sends to a thread that touches a missing page: one handler for the
//! process, installed once, in front of the previous one.
//!
//! - H1: the handler runs with all signals blocked that can be, even if a handler that was
//!   installed later calls it, so no other handler of its thread interrupts it, or leaves by
//!   `longjmp`; so the thread never waits for a page that it is in charge of itself.
//! - H2: it allocates nothing, takes no lock of the standard library, and restores errno.
//! - H3: it may run on an alternate stack of 8 KiB, part of which the kernel's frame takes: it puts
//!   nothing large on the stack.
//! - H4: a fault that is not resolved goes to the previous handler, or to the default action.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use zfold_pool::Lock;

/// If blocked, these would kill without a message.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// The previous action, and the function that resolves addresses.
struct Installed {
    before: libc::sigaction,
    resolve: fn(usize, Option<bool>) -> bool,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// The previous handler was to run only once, and has run.
static BEFORE_USED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. `resolve` is called with the address that was touched and, if that is
/// known, whether it was to be written; it returns whether it belonged to a region and can be
/// touched again.
///
/// # Errors
/// The system's; it has no reason to refuse.
pub(crate) fn install(resolve: fn(usize, Option<bool>) -> bool) -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    static LOCK: Lock<()> = Lock::new(());
    // Without the lock, which might be held for ever in a forked child. Acquire pairs with the
    // Release below: the handler is there.
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    let _one = LOCK.lock();
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action asks for the present one, which is written to `before`.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros, or what the system wrote, are a valid value.
    let before = unsafe { before.assume_init() };
    // Set before the handler can run.
    let _ = INSTALLED.set(Installed { before, resolve });
    let mut ours = before;
    ours.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: `sa_mask` is a set to be filled.
    unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
    for fault in FAULTS {
        // SAFETY: a filled set and a valid number.
        unsafe { libc::sigdelset(&raw mut ours.sa_mask, fault) };
    }
    // SAFETY: a handler of the right kind for SA_SIGINFO, which keeps to H1 to H4.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) } {
        0 => {
            DONE.store(true, Ordering::Release);
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid structure.
    let of = unsafe { &*info };
    let code = of.si_code;
    // SAFETY: any structure has these bytes; a value that is not an address is not used below.
    let address = unsafe { of.si_addr() }.expose_provenance();
    let Some(installed) = INSTALLED.get() else { return };
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: same as above.
    let saved = unsafe { *errno };
    let others = Others::block();
    // The kernel's for a missing page. A signal that a process sent has no address, and to touch
    // memory again that is broken, or is not aligned as the processor wants it, does not help.
    let resolved = code == libc::BUS_ADRERR && (installed.resolve)(address, writes(context));
    others.restore();
    // SAFETY: same as above.
    unsafe { *errno = saved };
    if !resolved {
        pass_on(installed, signal, info, context, code);
    }
}

/// Returns whether the touch that the kernel reports was a write.
#[cfg(target_arch = "x86_64")]
fn writes(context: *mut libc::c_void) -> Option<bool> {
    /// The bit of a write in the processor's error code of a page fault.
    const WRITE: i64 = 1 << 1;
    // SAFETY: the kernel passes a valid context to a handler with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    Some(context.uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0)
}

/// It is not known here.
#[cfg(not(target_arch = "x86_64"))]
fn writes(_context: *mut libc::c_void) -> Option<bool> {
    None
}

/// Signals that can be blocked in the handler, as the kernel's bits: not those that would kill
/// without a message if blocked, not those that the C library reserves (32 and 33), nor those that
/// the kernel never blocks.
const OTHERS: u64 = {
    let mut mask = u64::MAX;
    let mut at = 0;
    while at < FAULTS.len() {
        mask &= !(1 << (FAULTS[at] - 1));
        at += 1;
    }
    mask & !(0b11 << 31 | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1))
};

/// What was blocked when the handler began.
struct Others(u64);

impl Others {
    /// Blocks [`OTHERS`]. The kernel has done so if it called the handler itself; a handler that
    /// was installed later has a mask of its own. Costs a system call.
    fn block() -> Self {
        let mut before = OTHERS;
        set_mask(libc::SIG_BLOCK, &OTHERS, &mut before);
        Self(before)
    }

    fn restore(self) {
        if self.0 & OTHERS != OTHERS {
            set_mask(libc::SIG_SETMASK, &self.0, &mut 0);
        }
    }
}

/// Changes the thread's mask. By the system call itself: as 64 bits, the masks can be compared.
fn set_mask(how: libc::c_int, mask: &u64, before: &mut u64) {
    let (mask, before) = (std::ptr::from_ref(mask), std::ptr::from_mut(before));
    // SAFETY: a mask of eight bytes to be read, and one to be written.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, mask, before, size_of::<u64>()) };
}

/// Does what would have happened without this handler (H4).
fn pass_on(
    installed: &Installed,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    code: libc::c_int,
) {
    let before = &installed.before;
    let once = before.sa_flags & libc::SA_RESETHAND != 0;
    let used = once && BEFORE_USED.swap(true, Ordering::Relaxed);
    match before.sa_sigaction {
        // A fault cannot be ignored.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => die_of(signal, code),
        _ if used => die_of(signal, code),
        handler => {
            let as_before = mask_of(before, signal, context);
            // SAFETY: a valid set; the thread gets its own mask back when the handler returns.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const as_before, std::ptr::null_mut())
            };
            call(handler, before.sa_flags, signal, info, context);
        }
    }
}

/// The signals that would be blocked in the previous handler.
fn mask_of(
    before: &libc::sigaction,
    signal: libc::c_int,
    context: *mut libc::c_void,
) -> libc::sigset_t {
    // SAFETY: the kernel passes a valid context to a handler with SA_SIGINFO.
    let mut mask = unsafe { (*context.cast::<libc::ucontext_t>()).uc_sigmask };
    for other in 1..=64 {
        // SAFETY: a valid set; numbers that are no signals are refused.
        if unsafe { libc::sigismember(&raw const before.sa_mask, other) } == 1 {
            // SAFETY: same as above.
            unsafe { libc::sigaddset(&raw mut mask, other) };
        }
    }
    if before.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: same as above.
        unsafe { libc::sigaddset(&raw mut mask, signal) };
    }
    mask
}

fn call(
    handler: libc::sighandler_t,
    flags: libc::c_int,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(libc::c_int);
    let handler = std::ptr::with_exposed_provenance::<()>(handler);
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: it was installed with SA_SIGINFO.
        let handler: WithInfo = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: it was installed without SA_SIGINFO.
        let handler: Plain = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

/// Causes the default action: at once for a signal that was sent, otherwise when the thread touches
/// the address again.
fn die_of(signal: libc::c_int, code: libc::c_int) {
    // SAFETY: asks for the default action.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if code <= 0 {
        // It is blocked until the handler returns.
        // SAFETY: sends the signal to this thread.
        unsafe { libc::raise(signal) };
    }
}

/// Blocks all signals of a thread until this is dropped, in the same thread. Threads that are
/// started meanwhile keep them blocked.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    _of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks all signals that can be blocked.
    ///
    /// # Cost
    /// Two system calls, one of them when it is dropped: about 0.2 microseconds.
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set to be filled.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: a valid set, and room for another. The system ignores signals that cannot be
        // blocked.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: zeros, or what the system wrote, are a valid set.
        Self { before: unsafe { before.assume_init() }, _of_this_thread: PhantomData }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// Writes a line to stderr and ends the process, for code that cannot return an error. If threads
/// find a reason at the same time, one of them says its own.
pub(crate) fn die(what: &str, why: &str) -> ! {
    static DYING: AtomicBool = AtomicBool::new(false);
    // Relaxed: nothing else is decided by it.
    while DYING.swap(true, Ordering::Relaxed) {
        // Another thread is about to end the process.
        rustix::thread::sched_yield();
    }
    let line = ["zfold: ", what, ": ", why, "\n"].map(|part| io::IoSlice::new(part.as_bytes()));
    let _ = rustix::io::writev(rustix::stdio::stderr(), &line);
    std::process::abort()
}
