//! What `/proc` says about a thread.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::str::FromStr;

use super::arch::Seen;

/// The file `status` of a thread.
#[derive(Debug)]
pub(crate) struct Status(String);

impl Status {
    /// Reads it.
    ///
    /// # Errors
    /// The thread is gone.
    ///
    /// # Cost
    /// About 20 microseconds.
    pub(crate) fn of(tid: i32) -> io::Result<Self> {
        read(tid, "status").map(Self)
    }

    /// Returns a field; `None` if the kernel does not have it, or not for such a thread.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim)
    }

    /// Returns a field that is a size, in KiB.
    pub(crate) fn kib(&self, name: &str) -> Option<u64> {
        kib(&self.0, &format!("{name}:"))
    }

    /// Returns whether a signal is in a set, such as `SigCgt`.
    pub(crate) fn has(&self, set: &str, signal: i32) -> bool {
        let bits = self.field(set).and_then(|bits| u64::from_str_radix(bits, 16).ok());
        bits.unwrap_or(0) >> (signal - 1) & 1 == 1
    }

    /// Returns a field that is a number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

/// Reads a file of a thread: usually with two calls, where [`fs::read_to_string`] makes six, since
/// such files report no length.
fn read(tid: i32, name: &str) -> io::Result<String> {
    let mut text = String::with_capacity(4096);
    Read::take(fs::File::open(format!("/proc/{tid}/{name}"))?, u64::MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the call in which a thread is, with `u64::MAX` for its number if it is stopped outside
/// of one; `None` if it runs, or is gone.
pub(crate) fn call(tid: i32) -> Option<Seen> {
    seen(&read(tid, "syscall").ok()?)
}

/// Returns whether a process executes the same program as this one.
pub(crate) fn is_this_program(pid: i32) -> bool {
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(&pid.to_string()).is_some_and(|path| Some(path) == program("self"))
}

/// Reads number, six arguments, stack and instruction.
fn seen(line: &str) -> Option<Seen> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse::<i64>().ok()?.cast_unsigned();
    let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut args = [0; 6];
    if number != u64::MAX {
        for arg in &mut args {
            *arg = word()?;
        }
    }
    Some(Seen { number, args, stack: word()?, instruction: word()? })
}

/// Returns whether children of a thread begin a PID namespace of their own, or are in another one
/// than it is. False if that is not known.
pub(crate) fn begins_pid_namespace(tid: i32) -> bool {
    let link = |name: &str| fs::read_link(format!("/proc/{tid}/ns/{name}"));
    match (link("pid"), link("pid_for_children")) {
        (Ok(own), Ok(children)) => own != children,
        // The one of the children has no process yet.
        (Ok(_), Err(error)) => error.kind() == io::ErrorKind::NotFound && lives(tid),
        _ => false,
    }
}

/// Returns the process that a descriptor of a thread names, as this process knows it.
pub(crate) fn of_pidfd(tid: i32, pidfd: i32) -> Option<i32> {
    let info = read(tid, &format!("fdinfo/{pidfd}")).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|&pid| pid > 0)
}

/// The most that may be in `oom_score_adj`, by which the kernel weighs processes when it has to end
/// one: thousandths of the memory that there is, added to what the process has.
const MOST_WEIGHT: i32 = 1000;

/// Has the kernel end a process, and those that it forks, before this one when memory runs out.
/// That needs no right, and the process can change it.
///
/// # Errors
/// The process is gone, or protects itself.
pub(crate) fn end_before_this(pid: i32) -> io::Result<()> {
    let own = fs::read_to_string("/proc/self/oom_score_adj")?;
    let own: i32 = own.trim().parse().map_err(io::Error::other)?;
    let weight = own.saturating_add(MOST_WEIGHT).min(MOST_WEIGHT);
    fs::write(format!("/proc/{pid}/oom_score_adj"), weight.to_string())
}

/// Returns whether a thread that should sleep is frozen with its control group, so that it does
/// nothing until it is thawed. A frozen thread of a first-generation group cannot be distinguished
/// from one that waits for a disk.
///
/// # Cost
/// About 10 microseconds.
pub(crate) fn is_frozen(tid: i32) -> bool {
    if state(tid) == Some('D') {
        return true;
    }
    // The kernel function in which threads of frozen second-generation groups wait.
    let place = read(tid, "wchan").unwrap_or_default();
    matches!(place.as_str(), "get_signal" | "do_freezer_trap" | "__refrigerator")
}

/// Returns the number in a line `name: number kB` of such a file, by the name with its colon.
pub(crate) fn kib(file: &str, name: &str) -> Option<u64> {
    let line = file.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns a word of the file `stat` of a thread, counted from 0 after the name; `None` if the
/// thread is gone.
///
/// # Cost
/// About 10 microseconds.
pub(crate) fn stat(tid: i32, word: usize) -> Option<String> {
    stat_words(tid, word..word + 1)?.pop()
}

/// Returns some words of that file.
///
/// # Cost
/// Same as [`stat`].
pub(crate) fn stat_words(tid: i32, words: Range<usize>) -> Option<Vec<String>> {
    let stat = read(tid, "stat").ok()?;
    // The name may have spaces and brackets of its own.
    let all = stat.trim_end().rsplit_once(") ")?.1.split(' ');
    Some(all.skip(words.start).take(words.len()).map(str::to_owned).collect())
}

/// Returns the threads of the process of a thread, also those that the kernel made for it, such as
/// those of io_uring; none if it is gone. One that begins or ends meanwhile may be among them.
///
/// # Errors
/// They cannot be listed, for example because there are no free descriptors.
pub(crate) fn threads(tid: i32) -> io::Result<BTreeSet<i32>> {
    /// One that ends while they are listed can hide its neighbour.
    const LISTS_MAX: usize = 8;
    let mut all = BTreeSet::new();
    let mut last = None;
    for _ in 0..LISTS_MAX {
        let list = match list_threads(tid) {
            Ok(list) => list,
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        all.extend(&list);
        if last.as_ref() == Some(&list) {
            break;
        }
        last = Some(list);
    }
    Ok(all)
}

fn list_threads(tid: i32) -> io::Result<BTreeSet<i32>> {
    let mut list = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{tid}/task"))? {
        list.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(list)
}

/// Returns whether a file of `/proc` could not be read because the thread is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns the children of a thread; none where the kernel does not list them.
pub(crate) fn children(tid: i32) -> Vec<i32> {
    let list = read(tid, &format!("task/{tid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns whether the addresses that a process may map are limited, or those for its data. Not
/// known is no.
pub(crate) fn is_limited(pid: i32) -> bool {
    let limits = read(pid, "limits").unwrap_or_default();
    ["Max address space", "Max data size"].iter().any(|name| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        let current = line.and_then(|line| line.split_whitespace().next());
        current.is_some_and(|current| current != "unlimited")
    })
}

/// Returns the name of a process's program, 15 bytes at most; `?` if it is gone.
pub(crate) fn name(pid: i32) -> String {
    let name = read(pid, "comm");
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

/// Returns the letter of a thread's state, such as `R`; `None` if it is gone.
pub(crate) fn state(tid: i32) -> Option<char> {
    stat(tid, 0)?.chars().next()
}

/// Returns whether there is such a thread that has not ended; a number may be reused.
pub(crate) fn lives(tid: i32) -> bool {
    state(tid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_listed_while_others_end() {
        let pid = std::process::id().cast_signed();
        assert_eq!(threads(i32::MAX).unwrap(), BTreeSet::new(), "there is none");
        let (stay, stop) = (std::sync::Barrier::new(9), std::sync::Barrier::new(9));
        let own = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    own.lock().unwrap().push(rustix::thread::gettid().as_raw_nonzero().get());
                    stay.wait();
                    stop.wait();
                });
            }
            stay.wait();
            for _ in 0..300 {
                let short: Vec<_> = (0..4).map(|_| scope.spawn(std::thread::yield_now)).collect();
                let listed = threads(pid).unwrap();
                short.into_iter().for_each(|thread| thread.join().unwrap());
                assert!(own.lock().unwrap().iter().all(|thread| listed.contains(thread)));
            }
            stop.wait();
        });
    }

    #[test]
    fn a_process_executes_this_program_or_another() {
        assert!(is_this_program(std::process::id().cast_signed()));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        assert!(!is_this_program(other.id().cast_signed()));
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert!(!is_this_program(i32::MAX), "there is none");
    }

    #[test]
    fn a_call_is_read_as_the_kernel_shows_it() {
        let line = "22 0x4 0xffffe000 0x1 0xffffffff 0x0 0x8 0xffffd0 0xf7e2b4\n";
        let args = [4, 0xffff_e000, 1, 0xffff_ffff, 0, 8];
        let found = Seen { number: 22, args, stack: 0xff_ffd0, instruction: 0xf7_e2b4 };
        assert_eq!(seen(line), Some(found));
        let outside = seen("-1 0xffffd0 0xf7e2b4\n").expect("a line");
        assert_eq!((outside.number, outside.instruction), (u64::MAX, 0xf7_e2b4));
        assert_eq!((seen("running\n"), seen("22 0x4\n"), seen("")), (None, None, None));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            Status("Name:\ta b\nSeccomp_filters:\t3\nSeccomp:\t2\nVmLck:\t  0 kB\n".into());
        assert_eq!(status.number("Seccomp"), Some(2));
        assert_eq!(status.number("Seccomp_filters"), Some(3));
        assert_eq!((status.field("VmLck"), status.kib("VmLck")), (Some("0 kB"), Some(0)));
        assert_eq!((status.field("Vm"), status.number::<u32>("Name")), (None, None));
        let pid = std::process::id().cast_signed();
        assert_eq!(Status::of(pid).unwrap().number("Tgid"), Some(pid));
        assert!(Status::of(0).is_err() && stat(0, 0).is_none());
        assert!(stat(pid, 0).is_some_and(|state| state.len() == 1));
    }
}
