//! `SIGBUS`, which the kernel sends to a thread that touches a missing page: one handler for the
//! process, installed once, in front of what was there before.
//!
//! - H1: the handler works with all signals blocked that can be, also if it is called by a handler
//!   that was installed later, so no other handler of its thread comes between, or leaves by
//!   `longjmp`; a page of which this thread is in charge is never waited for by it.
//! - H2: on its path nothing is allocated, no lock of the standard library taken, and errno is
//!   as it was when it returns.
//! - H3: it may run on an alternative stack of 8 KiB, which the kernel's frame takes a part
//!   of: nothing big lies on the stack.
//! - H4: what is not resolved goes to the handler before, or to the default action.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocked, these would kill without a word.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// What was there before, and what resolves addresses.
struct Installed {
    before: libc::sigaction,
    resolve: fn(usize) -> bool,
}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// The handler before was for one time only, and has had its time.
static BEFORE_USED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. `resolve` is called with the address that was touched and says whether
/// it was one of ours and can be touched again.
///
/// # Errors
/// The system's, which has no reason to refuse.
pub(crate) fn install(resolve: fn(usize) -> bool) -> io::Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // Without the lock, which might be held for ever in a forked child. Acquire pairs with the
    // Release below: the handler is there.
    if DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    let _one = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
    // Known before the handler can run.
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
    // SAFETY: any structure has these bytes; what is not an address is not looked at below.
    let address = unsafe { of.si_addr() }.expose_provenance();
    let Some(installed) = INSTALLED.get() else { return };
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    let others = Others::block();
    // Positive: from the kernel. A signal that somebody sent has no address.
    let resolved = code > 0 && (installed.resolve)(address);
    others.restore();
    // SAFETY: as above.
    unsafe { *errno = saved };
    if !resolved {
        pass_on(installed, signal, info, context, code);
    }
}

/// Signals that can be blocked in the handler, as the kernel's bits: not those that would kill
/// without a word if they were, not those that the C library keeps for itself (32 and 33), nor
/// those that the kernel blocks for nobody.
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

/// Changes the thread's mask. By the system's own call: as 64 bits, the masks can be compared.
fn set_mask(how: libc::c_int, mask: &u64, before: &mut u64) {
    let (mask, before) = (std::ptr::from_ref(mask), std::ptr::from_mut(before));
    // SAFETY: a mask of eight bytes to be read, and one to be written.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, mask, before, size_of::<u64>()) };
}

/// Does what would have happened without us (H4).
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

/// The signals that would be blocked in the handler before.
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
            // SAFETY: as above.
            unsafe { libc::sigaddset(&raw mut mask, other) };
        }
    }
    if before.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: as above.
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
        // SAFETY: who installed it said so with SA_SIGINFO.
        let handler: WithInfo = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: who installed it said so without SA_SIGINFO.
        let handler: Plain = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

/// Brings the default action about: at once for a signal that was sent, or when the thread touches
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

/// All signals of a thread are blocked until this is dropped, in the same thread. Threads that are
/// started meanwhile keep them blocked.
#[derive(Debug)]
pub(crate) struct Blocked {
    before: libc::sigset_t,
    _of_this_thread: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks what can be blocked.
    ///
    /// # Cost
    /// Two system calls, one of them when it is dropped: some 0.2 microseconds.
    pub(crate) fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: a set to be filled.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: a valid set, and room for another. What cannot be blocked, the system leaves.
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

/// Writes a line to the error output and ends the process; for where nothing can be returned.
pub(crate) fn die(what: &str, why: &str) -> ! {
    for part in ["zfold: ", what, ": ", why, "\n"] {
        let _ = rustix::io::write(rustix::stdio::stderr(), part.as_bytes());
    }
    std::process::abort()
}
