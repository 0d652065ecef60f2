//! Programs that get helpers.

use std::sync::atomic::AtomicBool;

use super::followed::PLAIN;
use super::witness::Note;
use super::*;
use crate::link::Tracing as _;
use crate::permission::may_follow_forks;
use crate::sys::{arch, proc};
use crate::trace::inject::Injection;

#[test]
fn programs_do_not_notice_their_helpers() {
    let Some(path) = tracee() else { return };
    let mut attachments = 0;
    for program in PLAIN {
        let Some(access) = access() else { return };
        let expected = alone(path, &[program]);
        let witness = Arc::new(Witness::greedy());
        assert_eq!(traced(path, &[program], &witness, access), expected, "{program}");
        let refused = |note: &Note| matches!(note, Note::Refused(..));
        assert!(!witness.notes().iter().any(refused), "{program}: {:?}", witness.notes());
        attachments += witness.attachments();
    }
    // Not each of them: a program may end while a helper is on its way.
    assert!(attachments > 2 * PLAIN.len(), "{attachments} attachments");
}

/// Else it would have passed a small limit, or ended, before it can be asked to stop.
#[test]
fn a_program_is_attached_before_its_first_instruction() {
    needs!(tracee().is_some());
    for _ in 0..5 {
        let Some(access) = access() else { return };
        let witness = Arc::new(Witness::greedy());
        assert!(run(&command(["true"]), &witness, access).success());
        assert_eq!(witness.attachments(), 1, "{:?}", witness.notes());
    }
    // The shell, which has a helper already, and what it becomes.
    let Some(access) = access() else { return };
    let witness = Arc::new(Witness::greedy());
    let program = command(["sh", "-c", "exec true"]);
    assert!(run(&program, &witness, access).success());
    assert_eq!(witness.attachments(), 2, "{:?}", witness.notes());
}

/// A shell whose heap grows at its beginning.
#[test]
fn a_heap_that_grows_is_told_where_a_limit_is_small() {
    needs!(tracee().is_some());
    let Some(access) = access() else { return };
    let witness = Arc::new(Witness::greedy());
    let exit = run(&command(["sh", "-c", "exit 3"]), &witness, access);
    assert_eq!(exit.code(), Some(3));
    let grown = |note: &Note| matches!(note, Note::Grown(_));
    assert!(witness.notes().iter().any(grown), "{:?}", witness.notes());
}

/// Who has joined a thread does not find it in its process any more: it does not stay there until
/// its end is received here. Else its end would be told after the next one has begun.
#[test]
fn a_thread_that_was_joined_is_known_no_more() {
    let Some(path) = tracee() else { return };
    for is_greedy in [false, true] {
        let Some(access) = access() else { return };
        let witness = Arc::new(if is_greedy { Witness::greedy() } else { Witness::default() });
        assert_eq!(traced(path, &["joins"], &witness, access), alone(path, &["joins"]));
        assert_eq!(witness.together.load(Ordering::Relaxed), 2, "the first and one other");
        // Only of attached spaces is anything needed then.
        let ends = witness.ends.load(Ordering::Relaxed);
        assert_eq!(ends >= 300, is_greedy, "{ends} ends");
        assert_eq!(witness.robust.load(Ordering::Relaxed) > 0, is_greedy, "of {ends} ends");
    }
}

#[test]
fn a_helper_is_no_child_after_exec() {
    let Some(path) = tracee() else { return };
    let Some(access) = access() else { return };
    let witness = Arc::new(Witness::default());
    // The shell and the program, but not what that becomes.
    witness.appetite.store(2, Ordering::Relaxed);
    let expected = alone(path, &["exec-waits"]);
    assert_eq!(traced(path, &["exec-waits"], &witness, access), expected);
    assert_eq!(witness.attachments(), 2);
}

#[test]
fn a_static_program_is_attached() {
    needs!(tracee().is_some());
    let Some(path) = programs().fixed.as_deref() else {
        return skip("there is no static C library");
    };
    let Some(access) = access() else { return };
    let witness = Arc::new(Witness::greedy());
    let expected = alone(path, &["forks"]);
    assert_eq!(traced(path, &["forks"], &witness, access), expected);
    assert!(witness.attachments() > 10);
    let forks = witness.forks.lock().unwrap();
    assert!(forks.iter().all(Option::is_some), "the C library asks for the number: {forks:?}");
    assert!(forks.len() >= 10 || !may_follow_forks(), "{forks:?}");
}

#[test]
fn signals_and_helpers_do_not_disturb_each_other() {
    let Some(path) = tracee() else { return };
    let Some(access) = access() else { return };
    let expected = alone(path, &["storm"]);
    let witness = Arc::new(Witness::greedy());
    assert_eq!(traced(path, &["storm"], &witness, access), expected);
    assert!(witness.attachments() > 20);
}

#[test]
fn an_executable_is_free_when_its_program_has_ended() {
    needs!(tracee().is_some());
    let Some(access) = access() else { return };
    let copy = programs().folder.path().join("copy-of-true");
    let script = "i=0; while [ $i -lt 100 ]; do i=$((i + 1)); \
        cat /bin/true >\"$0\" && chmod +x \"$0\" && \"$0\" || exit 1; done";
    let program = command(["sh".as_ref(), "-c".as_ref(), script.as_ref(), copy.as_os_str()]);
    let witness = Arc::new(Witness::greedy());
    assert!(run(&program, &witness, access).success());
}

#[test]
fn a_32_bit_program_runs_unmanaged() {
    needs!(tracee().is_some());
    let path = programs().folder.path().join("tracee32");
    let compiled = Command::new("cc")
        .args(["-m32", "-nostdlib", "-static", "-o"])
        .arg(&path)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tracee32.s"))
        .stderr(Stdio::null())
        .status();
    let runs = || Command::new(&path).status().is_ok_and(|status| status.code() == Some(23));
    let runs = compiled.is_ok_and(|status| status.success()) && runs();
    needs!(runs, "32-bit programs cannot be made or run here");
    let witness = Arc::new(Witness::greedy());
    let exit = run(&command([&path]), &witness, Access::Call);
    assert_eq!(exit.code(), Some(23));
    let notes = witness.notes();
    let told = |note: &&Note| matches!(note, Note::Refused(_, reason) if reason.contains("32-bit"));
    assert_eq!(notes.iter().filter(told).count(), 1, "{notes:?}");
    assert_eq!(witness.attachments(), 0);
}

/// Calls that newer architectures have in another form only, by which the C library makes them.
mod forms {
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) use libc::{
        SYS_clone as VFORK, SYS_epoll_pwait as EPOLL, SYS_ppoll as PAUSE, SYS_ppoll as POLL,
        SYS_pselect6 as SELECT,
    };
    #[cfg(target_arch = "x86_64")]
    pub(super) use libc::{
        SYS_epoll_wait as EPOLL, SYS_pause as PAUSE, SYS_poll as POLL, SYS_select as SELECT,
        SYS_vfork as VFORK,
    };
}

/// Calls in which a program is attached, and their numbers; none: it computes or is stopped.
pub(super) const BLOCKING: [(&str, &[libc::c_long]); 20] = [
    ("nanosleep", &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]),
    ("read", &[libc::SYS_read]),
    ("read-eintr", &[libc::SYS_read]),
    ("read-restart", &[libc::SYS_read]),
    ("futex", &[libc::SYS_futex]),
    ("poll", &[forms::POLL]),
    ("ppoll", &[libc::SYS_ppoll]),
    ("epoll", &[forms::EPOLL]),
    ("epoll-eintr", &[forms::EPOLL]),
    ("select", &[forms::SELECT, libc::SYS_pselect6]),
    ("pause", &[forms::PAUSE]),
    ("sigsuspend", &[libc::SYS_rt_sigsuspend]),
    ("sigtimedwait", &[libc::SYS_rt_sigtimedwait]),
    ("semop", &[libc::SYS_semtimedop]),
    ("msgrcv", &[libc::SYS_msgrcv]),
    ("recv", &[libc::SYS_recvfrom]),
    ("wait", &[libc::SYS_wait4]),
    ("vfork", &[forms::VFORK]),
    ("spin", &[]),
    ("stopped", &[]),
];

/// Whether a program is where it is to be attached.
pub(super) fn is_there(pid: i32, how: &str, calls: &[libc::c_long]) -> bool {
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
            proc::state(pid) == Some('t')
        }),
        _ => {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            let number = call.split(' ').next().and_then(|number| number.parse().ok());
            number.is_some_and(|number| calls.contains(&number)) && proc::state(pid) != Some('R')
        }
    }
}

/// Runs a program with a witness that attaches it when `ready`. `None` if the program ended before.
fn attached_when(
    program: &Program,
    access: Access,
    ready: impl Fn(i32) -> bool + Send + Sync,
) -> Option<ExitStatus> {
    let handle = Arc::new(Handle::default());
    let _watchdog = Watchdog::new(&handle);
    let witness = Arc::new(Witness::default());
    witness.set_handle(&handle);
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
                wait_until(Box::new(|| witness.attachments() == 1));
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
    let Some(path) = tracee() else { return };
    for (how, calls) in BLOCKING {
        let expected = alone(path, &["blocked", how, "200"]);
        // On a busy machine the test may come too late, and gives itself more time.
        let attempt = [200, 400, 800, 1600, 3200, 6400].iter().find_map(|window_ms| {
            let (words, file) = redirected(path, &["blocked", how, &window_ms.to_string()]);
            let program = command(words);
            let exit = attached_when(&program, access()?, |pid| is_there(pid, how, calls));
            Some((exit?, fs::read_to_string(file).expect("its output")))
        });
        needs!(access().is_some());
        assert_eq!(attempt, Some(expected), "{how}");
    }
}

/// A program may jump into its helper's page, whose mapping the next helper replaces. It was killed
/// then: the calls were made with an instruction that was gone.
#[test]
fn calls_in_a_thread_in_its_helpers_page_do_without_that_page() {
    needs!(may_trace(), "processes may not be traced here");
    // A thread of its own, with which what it traces ends.
    let calls = thread::spawn(|| {
        let (bell, mut queue) = (process::start_bell().expect("a child"), Queue::new());
        ptrace::seize(bell.pid, ptrace::FOLLOW).expect("a child may be traced");
        ptrace::interrupt(bell.pid).expect("it is traced");
        assert!(matches!(ptrace::wait(bell.pid), Ok((_, Event::Stop { .. }))));
        let page = [channel::AT as u64, channel::CODE_LEN as u64];
        let access = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64;
        let mut calls = Injection::begin(bell.pid, At::Stop, None, &mut queue).expect("begun");
        let mapped = calls.call(libc::SYS_mmap, [page[0], page[1], access, flags, u64::MAX, 0]);
        assert_eq!(mapped.expect("made"), channel::AT as i64);
        calls.put(channel::AT, &arch::LOOP).expect("written");
        calls.finish().expect("finished");
        let mut registers = ptrace::registers(bell.pid).expect("it is stopped");
        registers.jump(channel::AT + arch::GADGET + arch::SYSCALL.len());
        ptrace::set_registers(bell.pid, &registers).expect("it is stopped");
        let mut calls = Injection::begin(bell.pid, At::Stop, None, &mut queue).expect("begun");
        let unmapped = calls.call(libc::SYS_munmap, [page[0], page[1], 0, 0, 0, 0]);
        let calls = (unmapped.expect("made"), calls.call(libc::SYS_getpid, [0; 6]).is_ok());
        process::kill(bell.pid);
        helper::wait_for_end(bell.pid, &mut queue);
        calls
    });
    assert_eq!(calls.join().expect("calls"), (0, true));
}

/// The child is asked first, since it is not the one that waits (T8).
#[test]
fn a_space_is_attached_when_a_child_of_vfork_has_left_it() {
    let Some(path) = tracee() else { return };
    let Some(access) = access() else { return };
    let (words, file) = redirected(path, &["filtered-after-vfork"]);
    let program = command(words);
    let ready = |pid| is_there(pid, "vfork", &[forms::VFORK]);
    let exit = attached_when(&program, access, ready);
    assert!(exit.is_some_and(|exit| exit.success()));
    assert_eq!(fs::read_to_string(file).expect("its output"), "seccomp: 2 \n");
}

/// Has the program that was begun last stand still again and again until all have ended; returns
/// how often it did.
fn disturb(witness: &Witness, handle: &Handle, ended: &AtomicBool) -> usize {
    let mut stood = 0;
    for turn in 1.. {
        if ended.load(Ordering::Acquire) {
            break;
        }
        let Some((_, space)) = witness.latest() else { continue };
        handle.stand(space, turn, true);
        let is_told = || witness.stood.lock().unwrap().contains(&(space, turn));
        let told = (0..100).any(|_| {
            thread::sleep(Duration::from_micros(100));
            is_told()
        });
        if told {
            stood += 1;
            // One on its way to its end is there for a moment.
            let moves = |tid| !matches!(proc::state(tid), Some('t' | 'Z' | 'X') | None);
            let moving = || witness.threads(space).into_iter().filter(|&tid| moves(tid)).count();
            zfold_testing::wait_until("no thread moves", || moving() == 0);
        }
        handle.stand(space, turn, false);
        thread::sleep(Duration::from_micros(300));
    }
    stood
}

/// None of its threads is in a call meanwhile, or in user code.
#[test]
fn programs_do_not_notice_that_they_stood_still() {
    let Some(path) = tracee() else { return };
    let mut stood = 0;
    for program in PLAIN {
        let Some(access) = access() else { return };
        let expected = alone(path, &[program]);
        let (words, file) = redirected(path, &[program]);
        let witness = Arc::new(Witness::greedy());
        let handle = Arc::new(Handle::default());
        let _watchdog = Watchdog::new(&handle);
        witness.set_handle(&handle);
        let memory = Arc::clone(&witness) as Arc<dyn Memory>;
        let ended = AtomicBool::new(false);
        let exit = thread::scope(|scope| {
            let disturbs = scope.spawn(|| disturb(&witness, &handle, &ended));
            let exit = trace(&command(words), memory, &handle, access, &mut |_| {});
            ended.store(true, Ordering::Release);
            stood += disturbs.join().expect("threads that stood still");
            exit.expect("the program ran")
        });
        witness.check();
        let printed = fs::read_to_string(file).expect("its output");
        assert_eq!((exit, printed), expected, "{program}");
    }
    assert!(stood > PLAIN.len(), "it stood still {stood} times");
}
