//! `SIGBUS`, which the kernel sends to a thread that touches a missing page: one handler for the
//! process, installed once, in front of the previous one, and functions that resolve addresses.
//!
//! - H1: the handler runs with all signals blocked that can be, even if a handler that was
//!   installed later calls it, so no other handler of its thread interrupts it, or leaves by
//!   `longjmp`; so the thread never waits for a page that it is in charge of itself.
//! - H2: it allocates nothing, takes no lock of the standard library, and restores errno.
//! - H3: it may run on an alternate stack of 8 KiB, part of which the kernel's frame takes: it puts
//!   nothing large on the stack.
//! - H4: a fault that is not resolved goes to the previous handler, or to the default action, and
//!   so does a signal that was sent. After that the handler is installed as before.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// If blocked, these would kill without a message.
const FAULTS: [libc::c_int; 5] =
    [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// Most functions that resolve addresses.
const RESOLVERS_MAX: usize = 4;

/// The functions that resolve addresses, the first of them first.
static RESOLVERS: [OnceLock<&Resolver>; RESOLVERS_MAX] = [const { OnceLock::new() }; RESOLVERS_MAX];

/// The previous action.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The previous handler was to run only once, and has run.
static BEFORE_USED: AtomicBool = AtomicBool::new(false);

/// A touch of memory that the kernel could not serve.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The address that was touched.
    pub address: usize,
    /// Whether it was to be written, if that is known.
    pub writes: Option<bool>,
    /// What was there is broken; otherwise nothing is.
    pub is_broken: bool,
}

/// A function that resolves addresses: it returns whether the address was its own and can be
/// touched again. It keeps to H2 and H3.
#[derive(Debug)]
pub struct Resolver {
    resolve: fn(&Touch) -> bool,
    is_installed: AtomicBool,
}

impl Resolver {
    /// Takes the function; nothing calls it yet.
    pub const fn new(resolve: fn(&Touch) -> bool) -> Self {
        Self { resolve, is_installed: AtomicBool::new(false) }
    }

    /// Has the handler call the function from now on. Repeating it does no harm.
    ///
    /// # Errors
    /// The system's; it has no reason to refuse.
    ///
    /// # Panics
    /// If the process has more than four of them.
    pub fn install(&'static self) -> io::Result<()> {
        static LOCK: Mutex<()> = Mutex::new(());
        // Without the lock, which might be held for ever in a forked child. Acquire pairs with the
        // Release below: the handler is there.
        if self.is_installed.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_installed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if BEFORE.get().is_none() {
            install_handler()?;
        }
        let added = RESOLVERS.iter().any(|free| free.set(self).is_ok());
        assert!(added, "more than {RESOLVERS_MAX} functions resolve addresses");
        self.is_installed.store(true, Ordering::Release);
        Ok(())
    }
}

fn install_handler() -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action asks for the present one, which is written to `before`.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros, or what the system wrote, are a valid value.
    let before = unsafe { before.assume_init() };
    // Set before the handler can run.
    let _ = BEFORE.set(before);
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
        0 => Ok(()),
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
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: every thread has an errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: same as above.
    let saved = unsafe { *errno };
    let others = Others::block();
    // The kernel's for a page that is missing or broken. A signal that a process sent has no
    // address, and to touch memory again that is not aligned as the processor wants it does not
    // help.
    let resolved = matches!(code, libc::BUS_ADRERR | libc::BUS_MCEERR_AR) && {
        let is_broken = code == libc::BUS_MCEERR_AR;
        let touch = Touch { address, writes: writes(context), is_broken };
        RESOLVERS.iter().map_while(OnceLock::get).any(|of| (of.resolve)(&touch))
    };
    others.restore();
    // SAFETY: same as above.
    unsafe { *errno = saved };
    if !resolved {
        pass_on(before, signal, info, context, code);
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
    before: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    code: libc::c_int,
) {
    // A signal that was sent, or reports broken memory that no thread has touched.
    let was_sent = code <= 0 || code == libc::BUS_MCEERR_AO;
    let once = before.sa_flags & libc::SA_RESETHAND != 0;
    let used = once && BEFORE_USED.swap(true, Ordering::Relaxed);
    let mut ours = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action asks for the present one, which is written to `ours`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), ours.as_mut_ptr()) };
    match before.sa_sigaction {
        // A fault cannot be ignored.
        libc::SIG_IGN if was_sent => return,
        libc::SIG_DFL | libc::SIG_IGN => die_of(signal, was_sent),
        _ if used => die_of(signal, was_sent),
        handler => {
            let as_before = mask_of(before, signal, context);
            // SAFETY: a valid set; the thread gets its own mask back when the handler returns.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const as_before, std::ptr::null_mut())
            };
            call(handler, before.sa_flags, signal, info, context);
        }
    }
    // The process goes on: it is the first of its container, or a handler such as that of Rust's
    // standard library has put back the default action, for a fault to come again.
    if was_sent && asked == 0 {
        // SAFETY: puts back what was there when this was called.
        unsafe { libc::sigaction(signal, ours.as_ptr(), std::ptr::null_mut()) };
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
fn die_of(signal: libc::c_int, was_sent: bool) {
    // SAFETY: asks for the default action.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if was_sent {
        raise_now(signal);
    }
}

/// Sends a signal to this thread, which its handler blocks, and lets it come.
fn raise_now(signal: libc::c_int) {
    let (mut only, mut blocked) = (MaybeUninit::zeroed(), MaybeUninit::zeroed());
    // SAFETY: makes `only` a valid set.
    unsafe { libc::sigemptyset(only.as_mut_ptr()) };
    // SAFETY: `only` is a valid set, and this a valid signal.
    unsafe { libc::sigaddset(only.as_mut_ptr(), signal) };
    // SAFETY: sends the signal to this thread.
    unsafe { libc::raise(signal) };
    let (unblock, set) = (libc::SIG_UNBLOCK, libc::SIG_SETMASK);
    // SAFETY: both are sets, of which the second is written to.
    unsafe { libc::pthread_sigmask(unblock, only.as_ptr(), blocked.as_mut_ptr()) };
    // SAFETY: puts back the set that was there.
    unsafe { libc::pthread_sigmask(set, blocked.as_ptr(), std::ptr::null_mut()) };
}
