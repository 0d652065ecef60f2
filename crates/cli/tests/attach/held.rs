//! Processes that are put under a limit while they work.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use zfold_testing::compiled::compile_text;
use zfold_testing::skip::has_program;

use crate::common::{command, needs, skip};
use crate::target::{Target, can_attach, resident, said, status, wait_for_limit};

const LIMIT: &str = "48MiB";
/// With some for what the kernel counts late.
const AT_MOST: u64 = 52 << 20;

fn can_run_python() -> bool {
    let has_python = has_program("python3");
    if !has_python {
        skip("no python3");
    }
    has_python && can_attach()
}

/// Four threads that work all the time, beside a main thread that has 96 MiB and waits for a line.
const THREADS: &str = r#"
import os, sys, threading
pages = [bytes([n % 251]) * 4096 for n in range(251)]
memory = [bytearray(pages[n % 251]) for n in range(24576)]
going, wrong = True, 0
def works():
    global wrong
    own, rounds = [bytearray(pages[n]) for n in range(251)], 0
    while going or rounds == 0:
        for n, page in enumerate(own):
            page[rounds % 4096] = (page[rounds % 4096] + 1) % 256
        rounds += 1
    for n, page in enumerate(own):
        for at in range(4096):
            times = rounds // 4096 + (at < rounds % 4096)
            wrong += page[at] != (n + times) % 256
threads = [threading.Thread(target=works) for n in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.readline()
wrong += sum(memory[n] != pages[n % 251] for n in range(24576))
going = False
for thread in threads:
    thread.join()
print(wrong, flush=True)
sys.stdin.readline()
os._exit(7)
"#;

#[test]
fn threads_that_work_do_not_notice_and_the_limit_is_kept() {
    needs!(can_run_python());
    let mut target = Target::python(THREADS);
    let pids = [target.pid()];
    assert!(resident(&pids) > 96 << 20);
    let text = target.attached(LIMIT);
    assert!(text.contains("for good: they end if zfold's manager"), "{text}");
    assert!(text.contains("1 process with 5 threads under a limit of 48MiB"), "{text}");
    // By the kernel's figures, not zfold's.
    wait_for_limit(&pids, AT_MOST);
    let filtered = status(pids[0], "Seccomp");
    target.tell("check");
    assert_eq!(target.line(), "0");
    assert_eq!(filtered, "2", "its calls are followed");
    wait_for_limit(&pids, AT_MOST);
    target.tell("end");
    assert_eq!(target.finish().code(), Some(7));
}

/// Three children before, one after; each has memory of its own, and shares what it was forked
/// with.
const CHILDREN: &str = r#"
import os, sys
shared = [bytes([n % 251]) * 4096 for n in range(8192)]
def child(number, gate):
    own = [bytearray([(n + number) % 251]) * 4096 for n in range(8192)]
    os.write(done[1], b"x")
    os.read(gate, 1)
    right = all(own[n] == bytes([(n + number) % 251]) * 4096 for n in range(8192))
    right = right and all(shared[n] == bytes([n % 251]) * 4096 for n in range(8192))
    os._exit(number if right else 99)
gates, done = os.pipe(), os.pipe()
def start(number):
    pid = os.fork()
    if pid == 0:
        child(number, gates[0])
    os.read(done[0], 1)
    return pid
pids = [start(number) for number in (1, 2, 3)]
print(*pids, flush=True)
sys.stdin.readline()
pids.append(start(4))
print(pids[3], flush=True)
sys.stdin.readline()
os.write(gates[1], b"xxxx")
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids], flush=True)
sys.stdin.readline()
"#;

#[test]
fn children_are_under_the_limit_with_their_parent() {
    needs!(can_run_python());
    let mut python = Command::new("python3");
    python.args(["-c", CHILDREN]);
    let mut target = Target::start(python);
    let numbers = |line: String| -> Vec<u32> {
        line.split(' ').map(|number| number.parse().expect("a number")).collect()
    };
    let mut family = numbers(target.line());
    family.push(target.pid());
    assert!(family.len() == 4 && resident(&family) > 128 << 20);
    let text = target.attached(LIMIT);
    assert!(text.contains("4 processes with 4 threads"), "{text}");
    wait_for_limit(&family, AT_MOST);
    target.tell("fork");
    family.extend(numbers(target.line()));
    wait_for_limit(&family, AT_MOST);
    target.tell("end");
    assert_eq!(target.line(), "[1, 2, 3, 4]");
    assert!(target.finish().success());
}

/// The parent of a vfork cannot be stopped until its child is done, which takes longer than the
/// attachment.
const VFORK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define SIZE (96u << 20)
int main(void) {
    unsigned char *memory = malloc(SIZE);
    for (unsigned at = 0; at < SIZE; at++) memory[at] = at / 4096 % 251;
    int gate[2], status;
    char byte;
    if (pipe(gate)) return 9;
    puts("ready");
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        char line[8];
        read(0, line, sizeof line);
        _exit(3);
    }
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3) return 8;
    puts("behind");
    fflush(stdout);
    if (read(0, &byte, 1) < 0) return 7;
    for (unsigned at = 0; at < SIZE; at++) if (memory[at] != at / 4096 % 251) return 6;
    return 5;
}
"#;

#[test]
fn a_parent_of_vfork_is_attached_behind_it() {
    needs!(can_attach());
    let Ok(program) = compile_text("vforks", VFORK) else { return skip("no C compiler") };
    let mut target = Target::start(Command::new(&program.program));
    assert_eq!(target.line(), "ready");
    zfold_testing::wait_until("it waits", || status(target.pid(), "State").starts_with('D'));
    let text = target.attached(LIMIT);
    assert!(text.contains("2 processes with 2 threads"), "{text}");
    target.tell("go on");
    assert_eq!(target.line(), "behind");
    wait_for_limit(&[target.pid()], AT_MOST);
    target.tell("end");
    assert_eq!(target.finish().code(), Some(5));
}

#[test]
fn attached_processes_are_listed_and_steered() {
    needs!(can_run_python());
    let mut target = Target::python(THREADS);
    target.attached("1GiB");
    assert!(resident(&[target.pid()]) > 96 << 20, "the limit is far");
    let zfold = |arguments: &[&str]| {
        let mut zfold = command(arguments);
        let output = zfold.env("XDG_RUNTIME_DIR", target.runtime()).output().expect("it starts");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let list: Value = serde_json::from_str(&zfold(&["ps", "--json"])).expect("JSON");
    let run = &list["runs"][0];
    let named = run["command"].as_str().expect("a name");
    assert!(named.contains(&format!("({})", target.pid())), "{named}");
    let manager = run["pid"].to_string();
    zfold(&["ctl", "--pid", &manager, "set", "limit=48MiB"]);
    wait_for_limit(&[target.pid()], AT_MOST);
    target.tell("check");
    assert_eq!(target.line(), "0");
}

#[test]
fn processes_end_with_a_manager_that_is_killed() {
    needs!(can_run_python());
    let target = Target::python(THREADS);
    let mut attach = target.attaching(LIMIT);
    let front = attach.arg("--wait").stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let front = front.expect("it starts");
    wait_for_limit(&[target.pid()], AT_MOST);
    // The tracer is the manager's first thread.
    let manager = status(target.pid(), "TracerPid").parse().expect("a manager");
    let manager = rustix::process::Pid::from_raw(manager).expect("a manager");
    rustix::process::kill_process(manager, rustix::process::Signal::KILL).expect("it runs");
    assert_eq!(target.finish().signal(), Some(9));
    let output = front.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the manager was killed"), "{}", said(&output));
}

#[test]
fn neither_the_front_nor_signals_end_the_manager() {
    needs!(can_run_python());
    let mut target = Target::python(THREADS);
    let mut attach = target.attaching(LIMIT);
    let front = attach.arg("--wait").stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut front = front.expect("it starts");
    wait_for_limit(&[target.pid()], AT_MOST);
    front.kill().expect("it runs");
    front.wait().expect("it ends");
    let manager = status(target.pid(), "TracerPid").parse().expect("a manager");
    let manager = rustix::process::Pid::from_raw(manager).expect("a manager");
    use rustix::process::Signal;
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT] {
        rustix::process::kill_process(manager, signal).expect("it runs");
    }
    target.tell("check");
    assert_eq!(target.line(), "0");
    target.tell("end");
    assert_eq!(target.finish().code(), Some(7));
    zfold_testing::wait_until("the manager ends with it", || {
        rustix::process::test_kill_process(manager).is_err()
            || status(manager.as_raw_pid().cast_unsigned(), "State").starts_with('Z')
    });
}
