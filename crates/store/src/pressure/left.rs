//! How much memory can still be had, below the limit of the own cgroup and of the machine.

use std::path::{Path, PathBuf};

use super::cgroup::{Limit, MEMORY, cgroup_folders, read};
use super::parse::{self, Version};

/// What the kernel says of memory that is left. It is found out once which files there are: a
/// cgroup that the process is moved to later is not noticed; a limit that changes is.
///
/// Pages of files in a cgroup count as left, used lately or not, except as many as are mapped or
/// not written yet: the kernel drops them before it ends a process for want of memory. Mapped ones
/// are mostly programs that run, which would have to be read again at once. For pages that are to
/// be written it does not wait.
#[derive(Clone, Debug)]
pub struct MemoryLeft {
    machine: PathBuf,
    limits: Vec<Limit>,
}

impl MemoryLeft {
    /// Finds out what there is.
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// Finds it below `root`.
    pub(super) fn below(root: &Path) -> Self {
        let limits = [Version::One, Version::Two].into_iter().flat_map(|version| {
            let folders = cgroup_folders(root, version, MEMORY);
            folders.into_iter().map(move |folder| Limit::of(&folder, version))
        });
        // The topmost cgroup has no such files.
        let limits = limits.filter(|limit| read(&limit.limit).is_some()).collect();
        Self { machine: root.join("proc/meminfo"), limits }
    }

    /// Returns what the kernel says now.
    ///
    /// # Cost
    /// About 100 microseconds: one file, and up to three for each cgroup.
    pub fn measure(&self) -> Left {
        let machine = read(&self.machine).and_then(|text| parse::available_bytes(&text));
        let of = self.limits.iter().filter_map(left_of).map(|(_, left)| left);
        let of = of.min_by_key(|left| left.cgroup);
        Left { machine, ..of.unwrap_or_default() }
    }

    /// Returns which share is left, of the machine's memory or of the limit of a cgroup, the least.
    pub(super) fn share(&self) -> Option<f64> {
        let machine = read(&self.machine).and_then(|text| parse::available(&text));
        let shares = self.limits.iter().filter_map(left_of);
        let shares = shares.filter_map(|(limit, left)| Some(left.cgroup? as f64 / limit as f64));
        machine.into_iter().chain(shares).reduce(f64::min)
    }

    /// Returns how many processes the kernel has ended in the own cgroup for want of memory, in
    /// version 2 also in those below it.
    ///
    /// # Cost
    /// A file.
    pub fn kills(&self) -> u64 {
        let killed = |name: &str| {
            let file = |limit: &Limit| read(&limit.limit.with_file_name(name));
            parse::counter(&self.limits.iter().find_map(file)?, "oom_kill")
        };
        killed("memory.oom_control").or_else(|| killed("memory.events")).unwrap_or(0)
    }

    /// Returns whether the kernel ends all processes of the own cgroup, or of one above it, when
    /// one is to end for want of memory (`memory.oom.group`).
    pub fn ends_together(&self) -> bool {
        let is_set = |limit: &Limit| {
            let file = limit.limit.with_file_name("memory.oom.group");
            read(&file).is_some_and(|text| text.trim() == "1")
        };
        self.limits.iter().any(is_set)
    }
}

/// What is left, in bytes; `None` where the kernel tells nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// What the machine has available.
    pub machine: Option<u64>,
    /// What is left below the limit of a cgroup, the tightest.
    pub cgroup: Option<u64>,
    /// Bytes of files in that cgroup that are to be written, and are not left before.
    pub unwritten: u64,
    /// Pages of files that the kernel has dropped in that cgroup and read again, since it was made.
    pub file_refaults: Option<u64>,
}

impl Left {
    /// Returns the bytes that this process can still have.
    pub fn bytes(&self) -> Option<u64> {
        self.machine.into_iter().chain(self.cgroup).min()
    }
}

impl Default for MemoryLeft {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the bytes that this process can still have, as a [`MemoryLeft`] that is used once.
pub fn memory_left() -> Option<u64> {
    MemoryLeft::new().measure().bytes()
}

/// Returns a limit and what is left below it, if there is one.
fn left_of(of: &Limit) -> Option<(u64, Left)> {
    let limit = parse::bytes(&read(&of.limit)?)?.max(1);
    // Version 1 says so where there is none.
    if limit > i64::MAX as u64 / 2 {
        return None;
    }
    let usage = parse::bytes(&read(&of.usage)?)?;
    let stat = read(&of.stat).unwrap_or_default();
    let sum = |names: &[&str]| -> u64 {
        names.iter().filter_map(|name| parse::counter(&stat, name)).fold(0, u64::saturating_add)
    };
    let (mapped, unwritten) = (sum(&[of.mapped]), sum(&of.unwritten));
    let dropped = sum(&of.files).saturating_sub(mapped.saturating_add(unwritten));
    let left = Left {
        machine: None,
        cgroup: Some(limit.saturating_sub(usage.saturating_sub(dropped))),
        unwritten,
        file_refaults: parse::counter(&stat, of.again),
    };
    Some((limit, left))
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::*;

    fn left(machine: &Machine) -> Option<u64> {
        MemoryLeft::below(machine.root()).measure().bytes()
    }

    #[test]
    fn ends_for_want_of_memory_are_those_of_the_own_cgroup() {
        let machine = Machine::new();
        let now = || MemoryLeft::below(machine.root());
        assert_eq!((now().kills(), now().ends_together()), (0, false));
        machine.write("proc/self/cgroup", "0::/a/b\n");
        machine.write("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.write("cg/a/memory.max", "300000\n");
        machine.write("cg/a/memory.events", "oom 9\noom_kill 9\n");
        machine.write("cg/a/memory.oom.group", "0\n");
        machine.write("cg/a/b/memory.max", "max\n");
        machine.write("cg/a/b/memory.events", "oom 4\noom_kill 3\noom_group_kill 0\n");
        assert_eq!((now().kills(), now().ends_together()), (3, false));
        machine.write("cg/a/memory.oom.group", "1\n");
        assert!(now().ends_together());
        let machine = Machine::new();
        machine.write("proc/self/cgroup", "4:memory:/c\n");
        machine.write("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup cgroup rw,memory\n");
        machine.write("cg/c/memory.limit_in_bytes", "300000\n");
        machine.write("cg/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_eq!(MemoryLeft::below(machine.root()).kills(), 2);
    }

    #[test]
    fn what_is_left_is_that_of_the_tightest() {
        let machine = Machine::new();
        assert_eq!(left(&machine), None);
        machine.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n");
        assert_eq!(left(&machine), Some(500 << 10));
        machine.write("proc/self/cgroup", "0::/a/b\n");
        machine.write("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.write("cg/a/memory.max", "300000\n");
        machine.write("cg/a/memory.current", "200000\n");
        machine.write("cg/a/memory.stat", "anon 1\ninactive_file 50000\n");
        machine.write("cg/a/b/memory.max", "max\n");
        machine.write("cg/a/b/memory.current", "100000\n");
        assert_eq!(left(&machine), Some(150_000));
        // Files count as left, used lately or not, except as many as are mapped.
        let stat = "inactive_file 50000\nactive_file 40000\nfile_mapped 30000\n\
                    workingset_refault_file 7\n";
        machine.write("cg/a/memory.stat", stat);
        let measured = MemoryLeft::below(machine.root()).measure();
        let (machine_left, cgroup) = (Some(500 << 10), Some(160_000));
        let expected = Left { machine: machine_left, cgroup, unwritten: 0, file_refaults: Some(7) };
        assert_eq!(measured, expected);
        assert_eq!(measured.bytes(), cgroup);
        machine.write("cg/a/memory.stat", "active_file 40000\nfile_mapped 70000\n");
        assert_eq!(left(&machine), Some(100_000));
        // Nor do those that are not written yet: the kernel killed a compiler for its output.
        let stat = "active_file 60000\nfile_mapped 20000\nfile_dirty 15000\nfile_writeback 5000\n";
        machine.write("cg/a/memory.stat", stat);
        let measured = MemoryLeft::below(machine.root()).measure();
        assert_eq!((measured.bytes(), measured.unwritten), (Some(120_000), 20_000));
        machine.write("cg/a/memory.stat", "active_file 40000\nfile_mapped 70000\n");
        let now = MemoryLeft::below(machine.root());
        machine.write("cg/a/b/memory.max", "90000\n");
        assert_eq!(now.measure().bytes(), Some(0), "used up");
        machine.write("cg/a/b/memory.max", "9223372036854771712\n");
        assert_eq!(now.measure().bytes(), Some(100_000), "no limit");
    }
}
