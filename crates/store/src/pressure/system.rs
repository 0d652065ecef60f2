//! The pressure of this machine and of the own cgroup, by the kernel's account.

use std::path::Path;

use super::left::MemoryLeft;
use super::stalls::{OwnStalls, between};

/// Shares of memory that are left: from here on it is calm, and down to there it is urgent.
const LEFT: (f64, f64) = (0.10, 0.02);

/// How short memory is: what [`OwnStalls`] and [`MemoryLeft`] say, whichever is worse.
#[derive(Debug)]
pub struct SystemPressure {
    stalls: Option<OwnStalls>,
    left: MemoryLeft,
}

impl SystemPressure {
    /// Returns a pressure by all that this kernel tells. If it tells nothing, it is always calm.
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns a pressure by the files below `root`.
    pub(crate) fn below(root: &Path) -> Self {
        Self { stalls: OwnStalls::below(root), left: MemoryLeft::below(root) }
    }

    /// Returns how much memory is wanted back, from 0 for none to 1 for all that can be given up.
    /// To be called about every second.
    pub fn measure(&mut self) -> f64 {
        let stalls = self.stalls.as_mut().and_then(OwnStalls::measure);
        let left = self.left.share().map(|share| between(share, LEFT));
        stalls.into_iter().chain(left).fold(0.0, f64::max).min(1.0)
    }
}

impl Default for SystemPressure {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::*;

    fn measure(pressure: &mut SystemPressure) -> f64 {
        (pressure.measure() * 1e6).round() / 1e6
    }

    #[test]
    fn little_available_memory_is_pressure() {
        let machine = Machine::new();
        let mut pressure = SystemPressure::below(machine.root());
        assert_eq!(measure(&mut pressure), 0.0, "without any file");
        for (kib, expected) in [(500, 0.0), (100, 0.0), (60, 0.5), (20, 1.0), (0, 1.0)] {
            machine.available(kib);
            assert_eq!(measure(&mut pressure), expected, "{kib}");
        }
    }

    #[test]
    fn the_tightest_source_counts() {
        let machine = Machine::new();
        machine.available(500);
        machine.write("proc/self/cgroup", "0::/a/b\n");
        let mount = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        machine.write("proc/self/mountinfo", mount);
        machine.stalled("sys/fs/cgroup/a/b/memory.pressure", 0);
        machine.write("sys/fs/cgroup/a/b/memory.max", "1000\n");
        machine.write("sys/fs/cgroup/a/b/memory.current", "500\n");
        machine.write("sys/fs/cgroup/a/memory.max", "2000\n");
        machine.write("sys/fs/cgroup/a/memory.current", "600\n");
        let mut pressure = SystemPressure::below(machine.root());
        assert_eq!(measure(&mut pressure), 0.0);
        machine.write("sys/fs/cgroup/a/b/memory.current", "940\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/a/memory.current", "1960\n");
        assert_eq!(measure(&mut pressure), 1.0);
        // Page cache is as good as free.
        machine.write("sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 900\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(measure(&mut pressure), 0.0);
        machine.stalled("sys/fs/cgroup/a/b/memory.pressure", 1 << 40);
        assert_eq!(measure(&mut pressure), 1.0);
        assert_eq!(measure(&mut pressure), 0.0, "nobody waited since");
    }

    #[test]
    fn a_limit_of_version_1_counts() {
        let machine = Machine::new();
        machine.write("proc/self/cgroup", "4:memory:/host/path/17\n0::/\n");
        // A container that sees its own cgroup as the top.
        let mount = "35 31 0:32 /other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        machine.write("proc/self/mountinfo", mount);
        machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
        machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "980\n");
        let mut pressure = SystemPressure::below(machine.root());
        assert_eq!(measure(&mut pressure), 1.0);
        machine.write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 40\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(measure(&mut pressure), 0.0);
    }
}
