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
use zfold_compare::proc;

/// How often the exact figures are taken even if nothing says that they are higher than before.
const EXACT_EVERY: usize = 16;

/// What was seen at the moments with most of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Most bytes of programs, of the kind that is managed, but for what is locked: that stays.
    pub(crate) managed_bytes: u64,
    /// Most bytes of programs that are never managed: stacks, and changed pages of files.
    pub(crate) unmanaged_bytes: u64,
    /// Most bytes of all, the processes of the program under test included.
    pub(crate) total_bytes: u64,
    /// Most processes at once, without those of the program under test.
    pub(crate) processes: usize,
    /// How often was looked.
    pub(crate) samples: usize,
}

/// Bytes of one process, or of several.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    managed: u64,
    unmanaged: u64,
}

/// Looks at a process and all that descend from it.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The processes that were seen in the tree, with their time of start: one whose parent has
    /// ended is still part of it.
    known: HashMap<i32, u64>,
    /// The executable of the program under test.
    own: PathBuf,
    /// What was not managed when the exact figures were taken last.
    unmanaged_bytes: u64,
    seen: Seen,
}

/// What `/proc/PID/stat` tells of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
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
    /// Pages that are shared count in full.
    anonymous_bytes: u64,
}

impl Observer {
    /// An observer of `root` and its descendants.
    pub(crate) fn new(root: u32, own: &Path) -> Self {
        let root = root as i32;
        let started = Process::of(root).map_or(0, |stat| stat.started);
        let own = own.canonicalize().expect("the program is there");
        Self {
            known: HashMap::from([(root, started)]),
            own,
            unmanaged_bytes: 0,
            seen: Seen::default(),
        }
    }

    /// Looks once.
    pub(crate) fn sample(&mut self) {
        let members = self.members();
        let programs: Vec<_> = members.iter().filter(|member| !member.own).collect();
        let sum = |members: &mut dyn Iterator<Item = &Member>| -> u64 {
            members.map(|member| member.anonymous_bytes).sum()
        };
        let own = sum(&mut members.iter().filter(|member| member.own));
        // Not below the exact figure, which is expensive.
        let most = sum(&mut programs.iter().copied());
        let record = most.saturating_sub(self.unmanaged_bytes) > self.seen.managed_bytes
            || most + own > self.seen.total_bytes;
        if record || self.seen.samples.is_multiple_of(EXACT_EVERY) {
            let exact = programs.iter().filter_map(|member| Bytes::of(member.pid));
            let Bytes { managed, unmanaged } = exact.fold(Bytes::default(), Bytes::plus);
            // Pages that move while they are counted, one mapping after the other, are counted
            // twice; there are not more than all processes say that they have.
            let after = self.members();
            let after = sum(&mut after.iter().filter(|member| !member.own));
            let managed = managed.min(most.max(after));
            self.unmanaged_bytes = unmanaged;
            let seen = &mut self.seen;
            seen.managed_bytes = seen.managed_bytes.max(managed);
            seen.unmanaged_bytes = seen.unmanaged_bytes.max(unmanaged);
            seen.total_bytes = seen.total_bytes.max(managed + unmanaged + own);
        }
        self.seen.samples += 1;
        self.seen.processes = self.seen.processes.max(programs.len());
    }

    /// Returns what was seen up to now.
    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// Kills every process of the tree that still runs.
    pub(crate) fn kill(&mut self) {
        self.members();
        for (&pid, &started) in &self.known {
            let is_it = Process::of(pid).is_some_and(|stat| stat.started == started);
            if let (true, Some(pid)) = (is_it, Pid::from_raw(pid)) {
                // It may have ended since.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Returns the processes of the tree that have memory of their own.
    fn members(&mut self) -> Vec<Member> {
        let all: HashMap<i32, Process> = processes().map(|stat| (stat.pid, stat)).collect();
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
        let anonymous_bytes = proc::anonymous_bytes(pid.cast_unsigned())?;
        Some(Member { pid, own, anonymous_bytes })
    }
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        let stat = proc::Stat::of(u32::try_from(pid).ok()?).ok()?;
        Some(Self {
            pid,
            state: stat.state()?,
            parent: stat.field(4)?.parse().ok()?,
            started: stat.field(22)?.parse().ok()?,
            exit_signal: stat.field(38)?.parse().ok()?,
        })
    }
}

fn processes() -> impl Iterator<Item = Process> {
    proc::all().filter_map(|pid| Process::of(pid.cast_signed()))
}

/// Whether the parent waits in vfork: then both have one memory. It sleeps uninterruptibly, and
/// both are of the same size in every respect.
fn waited_for(stat: &Process, parent: Option<&Process>) -> bool {
    let sizes = |pid| fs::read_to_string(format!("/proc/{pid}/statm")).ok();
    parent.is_some_and(|parent| {
        parent.state == 'D' && sizes(parent.pid).is_some() && sizes(parent.pid) == sizes(stat.pid)
    })
}

impl Bytes {
    /// Returns what a process has resident; each page in as many parts as processes have it.
    fn of(pid: i32) -> Option<Self> {
        Some(Self::parse(&fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?))
    }

    /// Returns the sums of a list of mappings, each of which has a line of its own and then lines
    /// `name: 123 kB`.
    fn parse(text: &str) -> Self {
        let mut bytes = Self::default();
        let (mut managed, mut proportional) = (false, 0);
        for line in text.lines() {
            if let Some(name) = mapping(line) {
                managed = !(name.starts_with('/') || name == "[stack]");
            } else if let Some(part) = proc::bytes(line, "Pss:") {
                proportional = part;
                bytes.managed += if managed { part } else { 0 };
            } else if let (true, Some(locked)) = (managed, proc::bytes(line, "Locked:")) {
                bytes.managed -= locked.min(bytes.managed);
            } else if let (false, Some(changed)) = (managed, proc::bytes(line, "Anonymous:")) {
                bytes.unmanaged += proportional.min(changed);
            }
        }
        bytes
    }

    fn plus(self, other: Self) -> Self {
        let (managed, unmanaged) = (self.managed + other.managed, self.unmanaged + other.unmanaged);
        Self { managed, unmanaged }
    }
}

/// Returns the name of the mapping that this line begins; one without a file may have none.
fn mapping(line: &str) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    [from, to].iter().all(|end| u64::from_str_radix(end, 16).is_ok()).then_some(())?;
    Some(fields.nth(4).unwrap_or(""))
}
