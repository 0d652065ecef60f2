//! How much anonymous memory a tree of processes has resident, as anyone can see in `/proc`.
//!
//! It does not believe the program under test in anything but which processes are its own: those
//! that run its executable. Two kinds of processes have another's memory and are not counted: one
//! whose exit signal is none, which the program under test puts beside a program, and one whose
//! parent waits for it in vfork.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// What was seen at the moments with most of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Most bytes in the whole tree.
    pub(crate) total_bytes: u64,
    /// Most bytes without the processes of the program under test itself.
    pub(crate) programs_bytes: u64,
    /// Most processes at once, without those of the program under test.
    pub(crate) processes: usize,
    /// How often was looked.
    pub(crate) samples: usize,
}

/// Looks at a process and all that descend from it.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The processes that were seen in the tree, with their time of start: one whose parent has
    /// ended is still part of it.
    known: HashMap<i32, u64>,
    /// The executable of the program under test.
    own: PathBuf,
    seen: Seen,
}

/// A line of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    pid: i32,
    state: char,
    parent: i32,
    started: u64,
    exit_signal: i32,
}

/// A process of the tree and what it has resident, pages that others have, too, included.
#[derive(Debug)]
struct Member {
    pid: i32,
    own: bool,
    anonymous_bytes: u64,
}

impl Observer {
    /// An observer of `root` and its descendants.
    pub(crate) fn new(root: u32, own: &Path) -> Self {
        let root = root as i32;
        let started = Stat::of(root).map_or(0, |stat| stat.started);
        let own = own.canonicalize().expect("the program is there");
        Self { known: HashMap::from([(root, started)]), own, seen: Seen::default() }
    }

    /// Looks once.
    pub(crate) fn sample(&mut self) {
        let members = self.members();
        let programs = members.iter().filter(|member| !member.own).count();
        self.seen.samples += 1;
        self.seen.processes = self.seen.processes.max(programs);
        let (mut total, mut of_programs) = sums(&members, |member| member.anonymous_bytes);
        // A sum that counts shared pages more than once is never too small; the exact one is
        // expensive.
        let record = total > self.seen.total_bytes || of_programs > self.seen.programs_bytes;
        if record && programs > 1 {
            (total, of_programs) = sums(&members, |member| {
                proportional_bytes(member.pid).unwrap_or(0).min(member.anonymous_bytes)
            });
        }
        self.seen.total_bytes = self.seen.total_bytes.max(total);
        self.seen.programs_bytes = self.seen.programs_bytes.max(of_programs);
    }

    /// Returns what was seen up to now.
    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// Kills every process of the tree that still runs.
    pub(crate) fn kill(&mut self) {
        self.members();
        for (&pid, &started) in &self.known {
            let is_it = Stat::of(pid).is_some_and(|stat| stat.started == started);
            if let (true, Some(pid)) = (is_it, Pid::from_raw(pid)) {
                // It may have ended since.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Returns the processes of the tree that have memory of their own.
    fn members(&mut self) -> Vec<Member> {
        let all: HashMap<i32, Stat> = processes().map(|stat| (stat.pid, stat)).collect();
        self.known.retain(|pid, started| all.get(pid).is_some_and(|stat| stat.started == *started));
        // Until no process is added: a child may come before its parent.
        loop {
            let new: Vec<_> = all
                .values()
                .filter(|stat| !self.known.contains_key(&stat.pid))
                .filter(|stat| self.known.contains_key(&stat.parent))
                .map(|stat| (stat.pid, stat.started))
                .collect();
            if new.is_empty() {
                break;
            }
            self.known.extend(new);
        }
        let mut tree: Vec<_> = self.known.keys().filter_map(|pid| all.get(pid)).collect();
        tree.sort_by_key(|stat| stat.pid);
        tree.iter()
            .filter(|stat| stat.exit_signal != 0 && !waited_for(stat, all.get(&stat.parent)))
            .filter_map(|stat| self.member(stat.pid))
            .collect()
    }

    fn member(&self, pid: i32) -> Option<Member> {
        let own = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.own);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Member { pid, own, anonymous_bytes: kilobytes(&status, "RssAnon:")? })
    }
}

/// Returns what all have, and what those have that are not the program under test.
fn sums(members: &[Member], bytes: impl Fn(&Member) -> u64) -> (u64, u64) {
    members.iter().fold((0, 0), |(total, programs), member| {
        let bytes = bytes(member);
        (total + bytes, programs + if member.own { 0 } else { bytes })
    })
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        let pid = line.split_once(' ')?.0.parse().ok()?;
        // The name may hold anything, parentheses included; the state follows it.
        let fields: Vec<_> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            pid,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
            exit_signal: field(38)?.parse().ok()?,
        })
    }
}

fn processes() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::of)
}

/// Whether the parent waits in vfork: then both have one memory. It sleeps uninterruptibly, and
/// both are of the same size in every respect.
fn waited_for(stat: &Stat, parent: Option<&Stat>) -> bool {
    let sizes = |pid| fs::read_to_string(format!("/proc/{pid}/statm")).ok();
    parent.is_some_and(|parent| {
        parent.state == 'D' && sizes(parent.pid).is_some() && sizes(parent.pid) == sizes(stat.pid)
    })
}

/// Returns the anonymous memory of a process, pages of several processes in equal parts.
fn proportional_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    kilobytes(&text, "Pss_Anon:")
}

/// Returns the bytes that a line `name 123 kB` tells.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(number << 10)
}

#[test]
fn a_process_with_a_strange_name_is_parsed() {
    let mut fields = vec!["0"; 50];
    (fields[0], fields[1], fields[19], fields[35]) = ("S", "41", "777", "17");
    let line = format!("42 (a) b (c)) {}", fields.join(" "));
    let expected = Stat { pid: 42, state: 'S', parent: 41, started: 777, exit_signal: 17 };
    assert_eq!(Stat::parse(&line), Some(expected));
    assert_eq!(Stat::parse("42 (a"), None);
    assert_eq!(kilobytes("RssFile: 8 kB\nRssAnon:\t  12 kB\n", "RssAnon:"), Some(12 << 10));
}

/// A child that was forked has the pages of its parent: they count once.
#[test]
fn pages_that_a_fork_shares_count_once() {
    if !crate::needs::installed("observer", &["python3"]) {
        return;
    }
    let python = crate::needs::python("sys").expect("any Python has sys");
    let program = "import os, sys\nb = bytearray(b'x') * (64 << 20)\nr = [os.fork(), os.fork()]\n\
                   print(flush=True)\nsys.stdin.read()";
    let mut command = std::process::Command::new(python);
    command.args(["-c", program]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines = [0; 4];
    let stdout = child.stdout.as_mut().expect("a pipe");
    std::io::Read::read_exact(stdout, &mut lines).expect("four processes say that they are there");
    let mut observer = Observer::new(child.id(), Path::new("/proc/self/exe"));
    observer.sample();
    drop(child.stdin.take());
    child.wait().expect("a child");
    let seen = observer.seen();
    assert_eq!(seen.processes, 4);
    assert_eq!(seen.total_bytes, seen.programs_bytes, "none is the program under test");
    let expected = (64 << 20)..(96 << 20);
    assert!(expected.contains(&seen.total_bytes), "{seen:?}");
}
