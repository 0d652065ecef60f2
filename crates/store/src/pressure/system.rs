//! The pressure of this machine and of the own cgroup, by the kernel's account.

use std::fs;
use std::path::{Path, PathBuf};

use super::level::{Level, Pressure};
use super::parse::{self, Version};

/// Stalls in percent of the time: up to here it is calm, and from there on it is urgent.
pub(super) const STALLS: (f64, f64) = (5.0, 50.0);

/// The controller of memory.
pub(super) const MEMORY: &str = "memory";

/// Shares of memory that are left: from here on it is calm, and down to there it is urgent.
const LEFT: (f64, f64) = (0.10, 0.02);

/// What the kernel tells about memory. It is found out once which files there are and which cgroups
/// have a limit; a cgroup that the process is moved to later, or that gets its first limit later,
/// is not noticed. A limit that changes is.
///
/// Costs a few system calls and some microseconds for each of its files, of which there are three
/// or four, and up to three more for each level that the own cgroup is below the top.
#[derive(Debug)]
pub struct SystemPressure {
    gauges: Vec<Gauge>,
    source: String,
}

/// A file, or a few, that give one measure.
#[derive(Debug)]
enum Gauge {
    Stalls {
        file: PathBuf,
        /// At the last call, in microseconds.
        total: Option<u64>,
    },
    Available {
        file: PathBuf,
    },
    Limit(Limit),
}

/// The files that say how much of a cgroup's memory is left, and the names of counters of `stat`.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) limit: PathBuf,
    pub(super) usage: PathBuf,
    pub(super) stat: PathBuf,
    /// Bytes of files used lately and of the others.
    pub(super) files: [&'static str; 2],
    /// Of these, bytes that are mapped; that are to be written, and that are being written.
    pub(super) mapped: &'static str,
    pub(super) unwritten: [&'static str; 2],
    /// Pages of files that were dropped and read again.
    pub(super) again: &'static str,
}

impl SystemPressure {
    /// Returns a pressure by all that this kernel tells. If it tells nothing, it is always calm.
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns a pressure by the files below `root`.
    fn below(root: &Path) -> Self {
        let (mut gauges, mut parts) = (Vec::new(), Vec::new());
        let mut add = |name, found: Vec<Gauge>| {
            let before = gauges.len();
            // A file may be there and refuse to be read: a kernel that was told not to count.
            gauges.extend(found.into_iter().filter_map(|mut gauge| {
                gauge.measure()?;
                Some(gauge)
            }));
            if gauges.len() > before {
                parts.push(name);
            }
        };
        add("stalls of the machine", vec![stalls(root.join("proc/pressure/memory"))]);
        let two = cgroup_folders(root, Version::Two, MEMORY);
        let own = two.first().map(|folder| stalls(folder.join("memory.pressure")));
        add("stalls of the cgroup", own.into_iter().collect());
        add("available memory", vec![Gauge::Available { file: root.join("proc/meminfo") }]);
        let one = cgroup_folders(root, Version::One, MEMORY);
        let limits = two.iter().map(|folder| Limit::of(folder, Version::Two));
        let limits = limits.chain(one.iter().map(|folder| Limit::of(folder, Version::One)));
        add("limit of the cgroup", limits.map(Gauge::Limit).collect());
        let source = match parts.is_empty() {
            true => "nothing: the kernel reports nothing".to_owned(),
            false => parts.join(", "),
        };
        Self { gauges, source }
    }
}

impl Default for SystemPressure {
    fn default() -> Self {
        Self::new()
    }
}

impl Pressure for SystemPressure {
    fn level(&mut self) -> Level {
        Level::of(self.gauges.iter_mut().filter_map(Gauge::measure).fold(0.0, f64::max))
    }

    /// Returns what is measured, as `stalls of the machine, available memory`.
    fn source(&self) -> &str {
        &self.source
    }
}

impl Gauge {
    /// Returns the measure now, or `None` if the files cannot be read. It is above 0 only if it is
    /// not calm.
    fn measure(&mut self) -> Option<f64> {
        match self {
            Self::Stalls { file, total } => {
                let now = parse::stalls(&read(file)?)?;
                let waited = total.replace(now.total).is_none_or(|before| now.total > before);
                Some(if waited { between(now.avg10, STALLS) } else { 0.0 })
            }
            Self::Available { file } => Some(between(parse::available(&read(file)?)?, LEFT)),
            Self::Limit(Limit { limit, usage, stat, files: [inactive, ..], .. }) => {
                // One that is gone since it was found has no limit, as one that says `max`.
                let limit = parse::bytes(&read(limit)?).filter(|&limit| limit > 0)?;
                let usage = parse::bytes(&read(usage)?)?;
                let cache = read(stat).and_then(|stat| parse::counter(&stat, inactive));
                let used = usage.saturating_sub(cache.unwrap_or(0));
                Some(between(1.0 - used as f64 / limit as f64, LEFT))
            }
        }
    }
}

/// Returns 0 where `value` is calm, 1 where it is urgent, and beyond these what is in proportion.
pub(super) fn between(value: f64, (calm, urgent): (f64, f64)) -> f64 {
    (value - calm) / (urgent - calm)
}

fn stalls(file: PathBuf) -> Gauge {
    Gauge::Stalls { file, total: None }
}

impl Limit {
    /// Returns the files of a cgroup.
    pub(super) fn of(folder: &Path, version: Version) -> Self {
        let (limit, usage, files, mapped, unwritten, again) = match version {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file", "total_active_file"],
                "total_mapped_file",
                ["total_dirty", "total_writeback"],
                "total_workingset_refault_file",
            ),
            Version::Two => (
                "memory.max",
                "memory.current",
                ["inactive_file", "active_file"],
                "file_mapped",
                ["file_dirty", "file_writeback"],
                "workingset_refault_file",
            ),
        };
        let [limit, usage, stat] = [limit, usage, "memory.stat"].map(|name| folder.join(name));
        Self { limit, usage, stat, files, mapped, unwritten, again }
    }
}

/// Returns the folders of the own cgroup in one hierarchy and of those above, or none.
pub(super) fn cgroup_folders(root: &Path, version: Version, controller: &str) -> Vec<PathBuf> {
    let find = || {
        let cgroups = read(&root.join("proc/self/cgroup"))?;
        let mount = parse::mount(&read(&root.join("proc/self/mountinfo"))?, version, controller)?;
        Some(mount.folders(parse::cgroup(&cgroups, version, controller)?))
    };
    let below_root = |folder: PathBuf| match folder.strip_prefix("/") {
        Ok(relative) => root.join(relative),
        Err(_) => folder,
    };
    find().unwrap_or_default().into_iter().map(below_root).collect()
}

/// Returns the folders of the own cgroup and of those above it, as far as they can be seen, in the
/// hierarchies of both versions that may have a controller, such as `pids`.
#[must_use]
pub fn cgroups(controller: &str) -> Vec<PathBuf> {
    let folders = |version| cgroup_folders(Path::new("/"), version, controller);
    [Version::One, Version::Two].into_iter().flat_map(folders).collect()
}

pub(super) fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::*;

    impl Machine {
        fn available(&self, kib: u32) {
            let text = format!("MemTotal:       1000 kB\nMemAvailable:   {kib} kB\n");
            self.write("proc/meminfo", &text);
        }

        fn stalls(&self, path: &str, avg10: f64, total: u64) {
            let rest = "avg60=0.00 avg300=0.00";
            self.write(path, &format!("some avg10={avg10:.2} {rest} total={total}\n"));
        }

        fn pressure(&self) -> SystemPressure {
            SystemPressure::below(self.root())
        }
    }

    fn measure(pressure: &mut SystemPressure) -> f64 {
        (pressure.level().measure() * 1e6).round() / 1e6
    }

    #[test]
    fn without_any_file_it_is_calm() {
        let mut pressure = Machine::new().pressure();
        assert_eq!(pressure.level(), Level::Calm);
        assert_eq!(pressure.source(), "nothing: the kernel reports nothing");
    }

    #[test]
    fn little_available_memory_is_pressure() {
        let machine = Machine::new();
        machine.available(500);
        let mut pressure = machine.pressure();
        assert_eq!(pressure.source(), "available memory");
        for (kib, expected) in [(500, 0.0), (100, 0.0), (60, 0.5), (20, 1.0), (0, 1.0)] {
            machine.available(kib);
            assert_eq!(measure(&mut pressure), expected, "{kib}");
        }
    }

    #[test]
    fn stalls_are_pressure_while_they_go_on() {
        let machine = Machine::new();
        machine.stalls("proc/pressure/memory", 0.0, 5);
        let mut pressure = machine.pressure();
        assert_eq!(pressure.source(), "stalls of the machine");
        let cases = [(5.0, 6, 0.0), (27.5, 7, 0.5), (27.5, 7, 0.0), (90.0, 8, 1.0), (0.0, 9, 0.0)];
        for (avg10, total, expected) in cases {
            machine.stalls("proc/pressure/memory", avg10, total);
            assert_eq!(measure(&mut pressure), expected, "{avg10} {total}");
        }
    }

    #[test]
    fn the_tightest_source_counts() {
        let machine = Machine::new();
        machine.available(500);
        machine.stalls("proc/pressure/memory", 0.0, 0);
        machine.write("proc/self/cgroup", "0::/a/b\n");
        let mount = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        machine.write("proc/self/mountinfo", mount);
        machine.stalls("sys/fs/cgroup/a/b/memory.pressure", 0.0, 0);
        machine.write("sys/fs/cgroup/a/b/memory.max", "1000\n");
        machine.write("sys/fs/cgroup/a/b/memory.current", "500\n");
        machine.write("sys/fs/cgroup/a/memory.max", "2000\n");
        machine.write("sys/fs/cgroup/a/memory.current", "600\n");
        let mut pressure = machine.pressure();
        assert_eq!(
            pressure.source(),
            "stalls of the machine, stalls of the cgroup, available memory, limit of the cgroup"
        );
        assert_eq!(measure(&mut pressure), 0.0);
        machine.write("sys/fs/cgroup/a/b/memory.current", "940\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/a/memory.current", "1960\n");
        assert_eq!(measure(&mut pressure), 1.0);
        // Old page cache is as good as free.
        machine.write("sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 900\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(measure(&mut pressure), 0.0);
        machine.stalls("sys/fs/cgroup/a/b/memory.pressure", 27.5, 1);
        assert_eq!(measure(&mut pressure), 0.5);
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
        let mut pressure = machine.pressure();
        assert_eq!(pressure.source(), "limit of the cgroup");
        assert_eq!(measure(&mut pressure), 1.0);
        machine.write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 40\n");
        assert_eq!(measure(&mut pressure), 0.5);
        machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(measure(&mut pressure), 0.0);
    }
}
