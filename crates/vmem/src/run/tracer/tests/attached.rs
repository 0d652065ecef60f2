//! Programs that get helpers.

use std::sync::atomic::AtomicBool;

use super::followed::PLAIN;
use super::witness::Note;
use super::*;
use crate::run::memory::{Attached, Call};
use crate::sys::uffd::Uffd;

#[test]
fn programs_do_not_notice_their_helpers() {
    const TEST: &str = "programs_do_not_notice_their_helpers";
    let Some(path) = tracee(TEST) else { return };
    for program in PLAIN {
        let Some(access) = access(TEST) else { return };
        let expected = alone(path, &[program]);
        let witness = Arc::new(Witness::greedy());
        assert_eq!(traced(path, &[program], &witness, access), expected, "{program}");
        let refused = |note: &Note| matches!(note, Note::Refused(..));
        assert!(!witness.notes().iter().any(refused), "{program}: {:?}", witness.notes());
        assert!(witness.attachments() > 1, "{program}");
    }
}

#[test]
fn a_helper_is_no_child_after_exec() {
    const TEST: &str = "a_helper_is_no_child_after_exec";
    let Some(path) = tracee(TEST) else { return };
    let Some(access) = access(TEST) else { return };
    let witness = Arc::new(Witness::default());
    // The shell and the program, but not what that becomes.
    witness.appetite.store(2, Ordering::Relaxed);
    let expected = alone(path, &["exec-waits"]);
    assert_eq!(traced(path, &["exec-waits"], &witness, access), expected);
    assert_eq!(witness.attachments(), 2);
}

#[test]
fn a_static_program_is_attached() {
    const TEST: &str = "a_static_program_is_attached";
    if tracee(TEST).is_none() {
        return;
    }
    let Some(path) = programs().fixed.as_deref() else {
        return skipped(TEST, "there is no static C library");
    };
    let Some(access) = access(TEST) else { return };
    let witness = Arc::new(Witness::greedy());
    let expected = alone(path, &["forks"]);
    assert_eq!(traced(path, &["forks"], &witness, access), expected);
    assert!(witness.attachments() > 10);
}

#[test]
fn signals_and_helpers_do_not_disturb_each_other() {
    const TEST: &str = "signals_and_helpers_do_not_disturb_each_other";
    let Some(path) = tracee(TEST) else { return };
    let Some(access) = access(TEST) else { return };
    let expected = alone(path, &["storm"]);
    let witness = Arc::new(Witness::greedy());
    assert_eq!(traced(path, &["storm"], &witness, access), expected);
    assert!(witness.attachments() > 20);
}

/// Calls in which a program is attached, and their numbers; none: it computes or is stopped.
const BLOCKING: [(&str, &[libc::c_long]); 20] = [
    ("nanosleep", &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]),
    ("read", &[libc::SYS_read]),
    ("read-eintr", &[libc::SYS_read]),
    ("read-restart", &[libc::SYS_read]),
    ("futex", &[libc::SYS_futex]),
    ("poll", &[libc::SYS_poll]),
    ("ppoll", &[libc::SYS_ppoll]),
    ("epoll", &[libc::SYS_epoll_wait]),
    ("epoll-eintr", &[libc::SYS_epoll_wait]),
    ("select", &[libc::SYS_select, libc::SYS_pselect6]),
    ("pause", &[libc::SYS_pause]),
    ("sigsuspend", &[libc::SYS_rt_sigsuspend]),
    ("sigtimedwait", &[libc::SYS_rt_sigtimedwait]),
    ("semop", &[libc::SYS_semtimedop]),
    ("msgrcv", &[libc::SYS_msgrcv]),
    ("recv", &[libc::SYS_recvfrom]),
    ("wait", &[libc::SYS_wait4]),
    ("vfork", &[libc::SYS_vfork]),
    ("spin", &[]),
    ("stopped", &[]),
];

/// Whether a program is where it is to be attached.
fn is_there(pid: i32, how: &str, calls: &[libc::c_long]) -> bool {
    let is_program = fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|path| path.file_name().is_some_and(|name| name == "tracee"));
    if !is_program {
        return false;
    }
    match how {
        "spin" => {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Ticks in user mode: all that is before takes less than one.
            stat.split(' ').nth(13).and_then(|ticks| ticks.parse().ok()).is_some_and(|t: u64| t > 3)
        }
        // Stopped by the tracer for a moment looks the same.
        "stopped" => (0..20).all(|_| {
            thread::sleep(Duration::from_millis(1));
            state(pid) == Some('t')
        }),
        _ => {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            let number = call.split(' ').next().and_then(|number| number.parse().ok());
            number.is_some_and(|number| calls.contains(&number)) && state(pid) != Some('R')
        }
    }
}

/// Runs a program with a witness that attaches it when `ready`, and does `then` after that. `None`
/// if the program ended before.
fn attached_when(
    program: &Program,
    access: Access,
    ready: impl Fn(i32) -> bool + Send + Sync,
    then: impl FnOnce(&Witness, SpaceId) + Send,
) -> Option<Exit> {
    let handle = Arc::new(Handle::default());
    let _watchdog = Watchdog::new(&handle);
    let witness = Arc::new(Witness::default());
    let memory = Arc::clone(&witness) as Arc<dyn Memory>;
    let ended = AtomicBool::new(false);
    let wait_until = |mut there: Box<dyn FnMut() -> bool + '_>| {
        while !ended.load(Ordering::Acquire) {
            if there() {
                return true;
            }
            thread::sleep(Duration::from_micros(500));
        }
        false
    };
    let exit = thread::scope(|scope| {
        scope.spawn(|| {
            let mut space = SpaceId(0);
            let is_ready = wait_until(Box::new(|| {
                witness.latest().is_some_and(|(pid, latest)| {
                    space = latest;
                    ready(pid)
                })
            }));
            if is_ready {
                *witness.wanted.lock().unwrap() = Some(space);
                handle.attach(space);
                if wait_until(Box::new(|| witness.attachments() == 1)) {
                    then(&witness, space);
                }
            }
        });
        let exit = trace(program, memory, &handle, access, &mut |_| {});
        ended.store(true, Ordering::Release);
        exit.expect("the program ran")
    });
    witness.check();
    (witness.attachments() == 1).then_some(exit)
}

#[test]
fn a_blocked_call_ends_as_if_nothing_had_been() {
    const TEST: &str = "a_blocked_call_ends_as_if_nothing_had_been";
    let Some(path) = tracee(TEST) else { return };
    for (how, calls) in BLOCKING {
        let expected = alone(path, &["blocked", how, "200"]);
        // On a busy machine the test may come too late, and gives itself more time.
        let attempt = [200, 400, 800, 1600, 3200, 6400].iter().find_map(|window_ms| {
            let (arguments, file) = redirected(path, &["blocked", how, &window_ms.to_string()]);
            let program = Program::new("sh", arguments);
            let exit =
                attached_when(&program, access(TEST)?, |pid| is_there(pid, how, calls), |_, _| {});
            Some((exit?, fs::read_to_string(file).expect("its output")))
        });
        if access(TEST).is_none() {
            return;
        }
        assert_eq!(attempt, Some(expected), "{how}");
    }
}

#[test]
fn a_helper_makes_calls_and_moves_pages() {
    const TEST: &str = "a_helper_makes_calls_and_moves_pages";
    let Some(path) = tracee(TEST) else { return };
    let Some(access) = access(TEST) else { return };
    let gate = programs().folder.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).expect("a pipe");
    let gate_name = gate.display().to_string();
    let (arguments, file) = redirected(path, &["pages", &gate_name]);
    let program = Program::new("sh", arguments);
    let ready = |_| fs::read_to_string(&file).is_ok_and(|output| output == "ready\n");
    let exit = attached_when(&program, access, ready, |witness, space| {
        witness.with(space, move_there_and_back).expect("it is attached");
        fs::write(&gate, "x").expect("the program waits");
    });
    assert_eq!(exit, Some(Exit::Code(0)));
    let output = fs::read_to_string(file).expect("its output");
    assert_eq!(output, "ready\nfirst: 97 \nsecond: 98 \n");
}

const PAGE: usize = 4096;
/// Where the program has two pages, of `a` and of `b`.
const PAGES: usize = 0x1000_0000_0000;

fn plain(number: libc::c_long, args: [u64; 6]) -> Call {
    Call { number: number as u64, args }
}

fn touch(address: usize) -> Call {
    Call { number: Call::TOUCH, args: [address as u64, 0, 0, 0, 0, 0] }
}

fn move_pages(attached: &mut Attached, to: usize, from: std::ops::Range<usize>) -> i64 {
    let request = Uffd::move_request(to, &from);
    let words = [request.dst, request.src, request.len, request.mode, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // SAFETY: this memory is lent for it.
    unsafe { process::write_memory(attached.pid, attached.arguments, &bytes).expect("written") };
    let argument = attached.arguments as u64;
    let call = plain(libc::SYS_ioctl, [Call::UFFD, Uffd::MOVE_CODE, argument, 0, 0, 0]);
    let mut result = [1];
    attached.inside.call(&[call], &mut result).expect("the helper lives");
    result[0]
}

fn move_there_and_back(attached: &mut Attached) {
    let (pid, staging) = (attached.pid, attached.staging.start);
    assert!(attached.arguments - staging >= 2 << 20);
    assert!(attached.staging.end - attached.arguments >= Call::AT_ONCE * 40);
    let mut results = [1; 3];
    let discard = libc::MADV_DONTNEED as u64;
    let calls = [
        plain(libc::SYS_getpid, [0; 6]),
        plain(libc::SYS_madvise, [staging as u64, 2 * PAGE as u64, discard, 0, 0, 0]),
        touch(PAGES + 8),
    ];
    attached.inside.call(&calls, &mut results).expect("the helper lives");
    assert_eq!(results, [i64::from(pid), 0, 0]);
    let many = vec![calls[0]; Call::AT_ONCE];
    let mut results = vec![0; Call::AT_ONCE];
    attached.inside.call(&many, &mut results).expect("the helper lives");
    assert!(results.iter().all(|result| *result == i64::from(pid)));

    let range = PAGES..PAGES + 4 * PAGE;
    // SAFETY: the program waits and does not touch these pages until they are back.
    unsafe { attached.uffd.register(range.clone()).expect("registered") };
    // SAFETY: this memory is lent for it.
    unsafe { attached.uffd.register(staging..attached.arguments).expect("registered") };
    assert_eq!(move_pages(attached, staging, PAGES..PAGES + 2 * PAGE), 0);
    let mut there = vec![0; 2 * PAGE];
    let got = process::read_memory(pid, staging, &mut there).expect("read");
    assert_eq!(got, there.len());
    assert!(there[..PAGE].iter().all(|byte| *byte == b'a'));
    assert!(there[PAGE..].iter().all(|byte| *byte == b'b'));

    let mut results = [1; 3];
    let calls = [touch(PAGES), touch(8), touch(staging)];
    attached.inside.call(&calls, &mut results).expect("the helper lives");
    let fault = -i64::from(libc::EFAULT);
    assert_eq!(results, [fault, fault, 0]);

    assert_eq!(move_pages(attached, PAGES, staging..staging + PAGE), 0);
    // SAFETY: this is what the program wrote there.
    unsafe { attached.uffd.copy(PAGES + PAGE, &there[PAGE..], true).expect("copied") };
    // SAFETY: nothing is missing there but what was never written.
    unsafe { attached.uffd.unregister(range).expect("as before") };
}
