//! What happens in a process of its own: signals, forks, ends. Each test starts this program again
//! with the name of a scenario, and looks at how it ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use zfold_region::{Memory, MemoryOptions, Region, RegionError};

use super::{MIB, PAGE, Random, beside, expect, fill, marks, merged, paged_out, small};

const SCENARIO: &str = "ZFOLD_REGION_SCENARIO";

/// A test for each line: its name, what its process does, and its exit status or the signal that
/// ends it.
macro_rules! scenarios {
    ($($name:ident: $run:path, $end:expr;)*) => {
        const SCENARIOS: &[(&str, fn())] = &[$((stringify!($name), $run)),*];
        $(#[test] fn $name() {
            let output = run(stringify!($name));
            let status = output.status;
            assert_eq!((status.code(), status.signal()), $end, "{output:?}");
        })*
    };
}

const RIGHT: (Option<i32>, Option<i32>) = (Some(0), None);
/// As [`exits`] ends a process.
const TOLD: (Option<i32>, Option<i32>) = (Some(42), None);
const BUS: (Option<i32>, Option<i32>) = (None, Some(libc::SIGBUS));
const SEGV: (Option<i32>, Option<i32>) = (None, Some(libc::SIGSEGV));

scenarios! {
    a_fault_of_others_goes_to_the_handler_that_was_there_before: handler_before, TOLD;
    a_fault_that_no_page_helps_goes_to_the_handler_that_was_there_before: not_aligned, TOLD;
    without_one_it_kills_as_it_did: no_handler_before, BUS;
    a_signal_that_somebody_sends_goes_there_too: sent_signal, RIGHT;
    a_signal_that_somebody_sends_takes_no_page_away: sent_signal_and_touch, RIGHT;
    a_handler_for_one_time_is_called_once: plain_handler_once, BUS;
    a_forked_child_that_touches_a_region_is_killed_and_never_reads_zeros: fork, RIGHT;
    // One that lay where its parent had one was taken for that, whose threads it does not have.
    a_forked_child_has_regions_of_its_own_where_its_parent_had_some: fork_and_new, RIGHT;
    a_touch_after_the_drop_is_a_segmentation_fault: after_drop, SEGV;
    eight_kibibytes_of_alternative_stack_suffice: small_stack, RIGHT;
    a_signal_handler_may_touch_a_region: handler_touches, RIGHT;
    a_handler_may_touch_a_region_whatever_call_it_interrupts: handler_interrupts_calls, RIGHT;
    a_process_has_many_regions: many_regions, RIGHT;
}

/// Those that need something, or have more to be looked at.
const OTHERS: [(&str, fn()); 5] = [
    ("store full", store_full),
    ("merged from the beginning", merged::from_the_beginning),
    ("merged by the process", merged::by_the_process),
    ("merged by advice", merged::by_advice),
    ("marks", marks::scenario),
];

fn run(scenario: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::child", "--nocapture"]).env(SCENARIO, scenario);
    command.output().unwrap()
}

/// Runs the scenario that the environment names, in a process that was started for it.
#[test]
fn child() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let (_, run) =
        SCENARIOS.iter().chain(&OTHERS).find(|(name, _)| *name == scenario).expect("a scenario");
    run();
}

pub(super) fn succeeds(scenario: &str) {
    let output = run(scenario);
    assert!(output.status.success(), "{output:?}");
}

/// Memory in which a touch raises `SIGBUS` that is not ours: a mapped file that has shrunk.
fn foreign() -> *const u8 {
    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE as u64).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: a fresh mapping of a file; nobody reads it but the test.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    at.cast()
}

fn touch(at: *const u8) -> u8 {
    // SAFETY: mapped; a fault is what the test is about.
    unsafe { at.read_volatile() }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn set_handler(signal: libc::c_int, handler: Handler, flags: libc::c_int) {
    // SAFETY: zeros are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: a handler of the kind that the flags say.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
}

static EXPECTED: AtomicUsize = AtomicUsize::new(0);
static CALLED: AtomicU32 = AtomicU32::new(0);

/// Ends the process with 42 if it is called for the address that is expected.
extern "C" fn exits(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's structure.
    let info = unsafe { &*info };
    // SAFETY: it is that of a fault, or the address is not the expected one.
    let address = unsafe { info.si_addr() }.addr();
    let right = signal == libc::SIGBUS && address == EXPECTED.load(Ordering::Relaxed);
    // SAFETY: ends the process.
    unsafe { libc::_exit(if right { 42 } else { 43 }) };
}

fn handler_before() {
    set_handler(libc::SIGBUS, exits, libc::SA_SIGINFO);
    let region = paged_out(MIB);
    expect(&region.as_slice::<u8>()[..PAGE], 0, 1);
    let at = foreign();
    EXPECTED.store(at.addr(), Ordering::Relaxed);
    touch(at);
}

/// A fault at an address of a region that is not one of a missing page: to try again would be to
/// wait for ever.
fn not_aligned() {
    set_handler(libc::SIGBUS, exits, libc::SA_SIGINFO);
    let region = paged_out(MIB);
    expect(&region.as_slice::<u8>()[..PAGE], 0, 1);
    EXPECTED.store(region.as_ptr().addr(), Ordering::Relaxed);
    // SAFETY: zeros are a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    (info.si_signo, info.si_code) = (libc::SIGBUS, libc::BUS_ADRALN);
    let address = (&raw mut info).wrapping_byte_add(2 * size_of::<u64>()).cast::<*mut u8>();
    // SAFETY: where a fault has its address, which is aligned.
    unsafe { address.write(region.as_ptr()) };
    let (process, info) = (std::process::id(), &raw const info);
    // SAFETY: asks for this thread's number.
    let thread = unsafe { libc::gettid() };
    // SAFETY: a signal for this thread, which may send one to itself with a code of the kernel's.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, info) };
}

fn no_handler_before() {
    // SAFETY: asks for the default action.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let region = paged_out(MIB);
    expect(&region.as_slice::<u8>()[..PAGE], 0, 1);
    touch(foreign());
}

/// Counts calls for signals that somebody sent.
extern "C" fn counts(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's structure.
    let sent = unsafe { (*info).si_code } <= 0;
    CALLED.fetch_add(u32::from(sent), Ordering::Relaxed);
}

fn sent_signal() {
    set_handler(libc::SIGBUS, counts, libc::SA_SIGINFO);
    let _region = paged_out(MIB);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CALLED.load(Ordering::Relaxed), 1);
    // SAFETY: zeros are a valid set.
    let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: asks the system what is blocked now.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask) };
    // SAFETY: a valid set.
    let blocked = unsafe { libc::sigismember(&raw const mask, libc::SIGBUS) };
    assert_eq!(blocked, 0, "the thread's mask is its own again");
}

fn sent_signal_and_touch() {
    let region = paged_out(MIB);
    // The standard library's handler puts back the default action.
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    expect(&region.as_slice::<u8>()[..PAGE], 0, 1);
}

/// As installed by `signal()` with one use only.
extern "C" fn plain(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLED.fetch_add(1, Ordering::Relaxed);
}

fn plain_handler_once() {
    set_handler(libc::SIGBUS, plain, libc::SA_RESETHAND);
    let _region = paged_out(MIB);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(CALLED.load(Ordering::Relaxed), 1);
    // SAFETY: same as above; the second one kills.
    unsafe { libc::raise(libc::SIGBUS) };
}

/// How a forked child ends that runs `child`.
fn in_fork(child: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child calls what is safe after a fork: it touches memory and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Its thread alone ends by a panic.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_err();
        // SAFETY: ends the child.
        unsafe { libc::_exit(failed.into()) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn fork() {
    let mut region = paged_out(MIB);
    region.as_mut_slice::<u8>()[0] = 1;
    let killed = |status, by| libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == by;
    for at in [0, 5 * PAGE] {
        // SAFETY: asks for the default action, without the message of the runtime.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        let status = in_fork(|| {
            touch(region.as_ptr().wrapping_add(at));
        });
        assert!(killed(status, libc::SIGSEGV), "{status}");
    }
    // The child has nothing to free, and no threads to wait for.
    let status = in_fork(|| drop(std::mem::ManuallyDrop::into_inner(copy(&region))));
    assert_eq!(status, 0);
    for _ in 0..2 {
        let rest = region.as_slice::<u8>()[PAGE..].chunks(PAGE);
        (1..).zip(rest).for_each(|(n, page)| expect(page, n, 1));
        region.pageout(..).unwrap();
    }
}

/// The region as the child has it.
fn copy(region: &Region) -> std::mem::ManuallyDrop<Region> {
    let region = std::ptr::from_ref(region).cast::<std::mem::ManuallyDrop<Region>>();
    // SAFETY: only in the child, where nobody drops the original.
    unsafe { region.read() }
}

fn fork_and_new() {
    let options = MemoryOptions::new(MIB).with_capacity(2048 * MIB);
    let memory = Memory::new(&options).unwrap();
    // Apart from each other, so that the holes that they are for a child are filled by regions,
    // which are shorter, and by nothing larger.
    let parents: Vec<_> = (0..200)
        .map(|_| {
            let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: new address space, which nobody uses.
            let between = unsafe { libc::mmap(std::ptr::null_mut(), 8 * MIB, none, flags, -1, 0) };
            assert_ne!(between, libc::MAP_FAILED);
            memory.region(8 * MIB).unwrap()
        })
        .collect();
    let is_parents = |at| {
        parents.iter().any(|region| {
            (region.as_ptr().addr()..region.as_ptr().addr() + region.len()).contains(&at)
        })
    };
    let status = in_fork(|| {
        // SAFETY: asks for a signal that ends the child if it waits for ever.
        unsafe { libc::alarm(600) };
        let memory = Memory::new(&options).unwrap();
        let mut own: Vec<_> = (0..500).map(|_| memory.region(4 * MIB).unwrap()).collect();
        own.retain(|new| is_parents(new.as_ptr().addr()));
        assert!(!own.is_empty(), "no region where the parent has its own");
        for new in own.iter_mut().take(20) {
            (0..).zip(new.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, p)| fill(p, n, 3));
            (0..).zip(new.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 3));
        }
    });
    assert_eq!(status, 0);
}

fn after_drop() {
    let region = paged_out(MIB);
    let at = region.as_ptr();
    drop(region);
    // SAFETY: as in `fork`.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    touch(at);
}

fn store_full() {
    let options = small(MIB).with_store_limit(MIB as u64 / 4);
    let mut region = Region::new(8 * MIB, &options).unwrap();
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
}

#[test]
fn a_full_store_ends_the_process_with_a_message_when_room_is_needed() {
    let output = run("store full");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("zfold: no room for a page: the store is full"), "{said}");
}

fn small_stack() {
    const STACK: usize = 8 << 10;
    let region = paged_out(4 * MIB);
    let on_thread = || {
        // Two pages, and one below that nobody may touch.
        // SAFETY: a fresh mapping.
        let stack = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                STACK + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(stack, libc::MAP_FAILED);
        // SAFETY: the lowest page of the mapping made above.
        assert_eq!(unsafe { libc::mprotect(stack, PAGE, libc::PROT_NONE) }, 0);
        let ss_sp = stack.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: memory to fill.
        unsafe { ss_sp.write_bytes(0xEE, STACK) };
        let alternative = libc::stack_t { ss_sp: ss_sp.cast(), ss_flags: 0, ss_size: STACK };
        // SAFETY: memory that stays until the process ends.
        let set = unsafe { libc::sigaltstack(&raw const alternative, std::ptr::null_mut()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        (0..).zip(region.as_slice::<u8>().chunks(PAGE)).for_each(|(n, page)| expect(page, n, 1));
        // SAFETY: the memory of the stack, which is not in use now.
        let bytes = unsafe { std::slice::from_raw_parts(ss_sp, STACK) };
        let untouched = bytes.iter().take_while(|&&byte| byte == 0xEE).count();
        assert!(untouched < STACK, "the handler ran here");
        println!("{} of {STACK} bytes of the stack used", STACK - untouched);
        assert!(untouched > 512, "{untouched} bytes left");
    };
    std::thread::scope(|scope| scope.spawn(on_thread).join().unwrap());
}

static SHARED: AtomicUsize = AtomicUsize::new(0);

/// Touches pages of the region, too.
extern "C" fn touches(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let calls = CALLED.fetch_add(1, Ordering::Relaxed) as usize;
    let at = SHARED.load(Ordering::Relaxed) + calls * 7919 % 1024 * PAGE;
    touch(std::ptr::with_exposed_provenance(at));
}

fn handler_touches() {
    let region = Region::new(4 * MIB, &small(MIB)).unwrap();
    // Signals come until the process ends.
    let mut region = std::mem::ManuallyDrop::new(region);
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
    SHARED.store(region.as_ptr().expose_provenance(), Ordering::Relaxed);
    set_handler(libc::SIGALRM, touches, libc::SA_SIGINFO | libc::SA_RESTART);
    let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: starts a timer.
    let started =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(started, 0);
    let mut random = Random::new(1);
    while CALLED.load(Ordering::Relaxed) < 200 {
        let n = random.below(1024);
        expect(&region.as_slice::<u8>()[n as usize * PAGE..][..PAGE], n, 1);
    }
}

fn many_regions() {
    let memory = zfold_region::Memory::new(&MemoryOptions::new(4 * MIB)).unwrap();
    let mut regions: Vec<_> = (0..1024).map(|_| memory.region(PAGE).unwrap()).collect();
    assert!(matches!(memory.region(PAGE), Err(RegionError::TooManyRegions)));
    for (number, region) in (0..).zip(&mut regions) {
        fill(region.as_mut_slice::<u8>(), number, 1);
        region.pageout(..).unwrap();
    }
    (0..).zip(&regions).for_each(|(number, region)| expect(region.as_slice::<u8>(), number, 1));
    regions.truncate(10);
    assert!(memory.region(PAGE).is_ok());
}

/// Pages of the region that the handler touches, from the first on.
const TOUCHED: usize = 512;
static REGION: AtomicUsize = AtomicUsize::new(0);
static TOUCHES: AtomicU64 = AtomicU64::new(0);

/// Counts in a page that may be anywhere.
extern "C" fn counts_there(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let region = std::ptr::with_exposed_provenance_mut::<AtomicU32>(REGION.load(Ordering::Relaxed));
    let touch = TOUCHES.fetch_add(1, Ordering::Relaxed);
    let page = touch.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55;
    let word = region.wrapping_add(page as usize * PAGE / size_of::<AtomicU32>());
    // SAFETY: within the region, which is there as long as signals come; nobody else uses these
    // pages but by calls that keep their contents.
    unsafe { (*word).fetch_add(1, Ordering::Relaxed) };
}

/// For how long calls are interrupted; `ZFOLD_SIGNAL_SECONDS` says otherwise.
fn patience() -> u64 {
    std::env::var("ZFOLD_SIGNAL_SECONDS").map_or(2, |text| text.parse().expect("seconds"))
}

fn handler_interrupts_calls() {
    let seconds = patience();
    // SAFETY: ends a process that waits for itself.
    unsafe { libc::alarm(seconds as u32 + 500) };
    set_handler(libc::SIGUSR1, counts_there, libc::SA_SIGINFO | libc::SA_RESTART);
    let memory = Memory::new(&small(MIB)).unwrap();
    let mut region = memory.region(2 * TOUCHED * PAGE).unwrap();
    REGION.store(region.as_ptr().expose_provenance(), Ordering::Relaxed);
    // SAFETY: this thread's own number.
    let target = unsafe { libc::pthread_self() };
    let signal = || {
        // SAFETY: a thread that outlives this one.
        unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_micros(200));
    };
    beside(signal, || {
        let (mut random, began, mut rounds) = (Random::new(1), Instant::now(), 0_u64);
        let enough = || TOUCHES.load(Ordering::Relaxed) > 500 * seconds;
        while began.elapsed() < Duration::from_secs(seconds) || !enough() {
            let first = random.index(2 * TOUCHED);
            let end = first + random.index(2 * TOUCHED - first + 1);
            let range = first * PAGE..end * PAGE;
            // The contents of these are nobody's.
            let own = range.start.max(TOUCHED * PAGE)..range.end.max(TOUCHED * PAGE);
            match rounds % 7 {
                0 => drop(region.stats()),
                1 => region.pageout(range).unwrap(),
                2 => region.prefetch(range),
                // The limit refuses much of it.
                3 => drop(region.pin(range)),
                4 => region.discard(own),
                5 => region.as_mut_slice::<u8>()[own].fill(rounds as u8),
                _ => {
                    let mut other = memory.region(64 * PAGE).unwrap();
                    other.as_mut_slice::<u8>().fill(rounds as u8);
                    assert!(other.as_slice::<u8>().iter().all(|byte| *byte == rounds as u8));
                }
            }
            rounds += 1;
        }
    });
    let word = |page: &[u8]| u32::from_ne_bytes(page[..4].try_into().unwrap());
    let counted: u64 =
        region.as_slice::<u8>().chunks(PAGE).take(TOUCHED).map(|page| u64::from(word(page))).sum();
    assert_eq!(counted, TOUCHES.load(Ordering::Relaxed), "a touch was lost");
}
