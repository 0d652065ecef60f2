//! How long tasks of the own cgroup, or of the machine, waited for memory, by the kernel's account
//! of pressure (PSI).

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::cgroup::{MEMORY, cgroup_folders, read};
use super::parse::{self, Version};

/// Stalls in percent of the time: up to here it is calm, and from there on it is urgent.
const STALLS: (f64, f64) = (5.0, 50.0);

/// The one account that is about this process: that of its cgroup, which the kernel keeps in
/// version 2. In a cgroup of version 1 there is none: the machine's account includes other cgroups.
/// Outside of any, the machine's is the own.
///
/// What was waited since the last look counts: the kernel's averages remember longer than that.
#[derive(Debug)]
pub struct OwnStalls {
    file: PathBuf,
    /// At the last look: when it was, and the microseconds waited since boot.
    last: (Instant, u64),
}

impl OwnStalls {
    /// Returns the account, from now on; `None` if the kernel keeps none that counts.
    pub fn new() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// Returns that below `root`.
    pub(super) fn below(root: &Path) -> Option<Self> {
        let file = account(root)?;
        let last = (Instant::now(), waited(&file)?);
        Some(Self { file, last })
    }

    /// Returns what it is about, for people: `stalls of the cgroup` or `stalls of the machine`.
    pub fn source(&self) -> &'static str {
        match self.file.starts_with("/proc") {
            true => "stalls of the machine",
            false => "stalls of the cgroup",
        }
    }

    /// Returns how much tasks waited since the last call, from 0 for calm to 1 for urgent; `None`
    /// if the account can no longer be read.
    pub fn measure(&mut self) -> Option<f64> {
        let (then, before) = self.last;
        self.last = (Instant::now(), waited(&self.file)?);
        let micros = self.last.0.saturating_duration_since(then).as_micros() as f64;
        let percent = 100.0 * self.last.1.saturating_sub(before) as f64 / micros.max(1.0);
        Some(between(percent, STALLS).clamp(0.0, 1.0))
    }
}

/// Returns the file of the account that counts.
fn account(root: &Path) -> Option<PathBuf> {
    let folders = cgroup_folders(root, Version::Two, MEMORY);
    // A container may see its own cgroup as the top.
    let files = [folders.first(), folders.last()];
    let files = files.into_iter().flatten().map(|folder| folder.join("memory.pressure"));
    let cgroups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let is_below_top =
        |version| parse::cgroup(&cgroups, version, MEMORY).is_some_and(|path| path != "/");
    // The top of version 2 has an account, too: that of the machine.
    if is_below_top(Version::One) && !is_below_top(Version::Two) {
        return None;
    }
    let machine = root.join("proc/pressure/memory");
    files.chain([machine]).find(|file| waited(file).is_some())
}

/// Returns 0 where `value` is calm, 1 where it is urgent, and beyond these what is in proportion.
pub(super) fn between(value: f64, (calm, urgent): (f64, f64)) -> f64 {
    (value - calm) / (urgent - calm)
}

/// Returns the microseconds since boot in which a task waited.
fn waited(file: &Path) -> Option<u64> {
    parse::stalls(&read(file)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::machine::Machine;
    use super::*;

    const SOME: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

    #[test]
    fn the_own_cgroup_comes_before_the_machine() {
        let machine = Machine::new();
        let root = machine.root();
        assert_eq!(account(root), None, "a kernel that does not count");
        machine.write("proc/pressure/memory", SOME);
        let own = machine.file("proc/pressure/memory");
        assert_eq!(account(root), Some(own.clone()));
        machine.write("proc/self/cgroup", "4:memory:/\n0::/\n");
        assert_eq!(account(root), Some(own), "in the topmost cgroups");
        machine.write("proc/self/cgroup", "4:memory:/jobs/1\n0::/\n");
        assert_eq!(account(root), None, "version 1 counts no stalls");
        machine.write("proc/self/mountinfo", "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n");
        machine.write("cg/memory.pressure", SOME);
        assert_eq!(account(root), None, "those of the top of version 2 are the machine's");
        machine.write("proc/self/cgroup", "0::/a/b\n");
        machine.write("cg/a/b/memory.pressure", SOME);
        assert_eq!(account(root), Some(machine.file("cg/a/b/memory.pressure")));
    }

    #[test]
    fn what_was_waited_since_the_last_look_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("account");
        let total = |total: u64| format!("some avg10=9.00 avg60=0.00 avg300=0.00 total={total}\n");
        fs::write(&file, total(1000)).expect("written");
        let mut stalls = OwnStalls { last: (Instant::now(), 1000), file: file.clone() };
        assert_eq!(stalls.measure(), Some(0.0), "however long ago was waited before");
        fs::write(&file, total(1 << 40)).expect("written");
        assert_eq!(stalls.measure(), Some(1.0));
        fs::remove_file(&file).expect("removed");
        assert_eq!(stalls.measure(), None);
    }
}
