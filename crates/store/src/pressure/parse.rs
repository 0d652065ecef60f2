//! The kernel's files about memory, as text. Every function returns `None` for a text that is not
//! as it should be, whatever it is.

use std::path::{Path, PathBuf};

/// Returns the microseconds since boot in which a task waited, of a pressure file.
pub(super) fn stalls(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// Returns the share of all memory that can be had without swapping.
pub(super) fn available(meminfo: &str) -> Option<f64> {
    let total = kib(meminfo, "MemTotal").filter(|&total| total > 0)?;
    Some(kib(meminfo, "MemAvailable")? as f64 / total as f64)
}

/// Returns the bytes that can be had without swapping.
pub(super) fn available_bytes(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemAvailable")?.checked_mul(1024)
}

fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

/// Returns the limit of a cgroup in bytes, or `None` also if it has none.
pub(super) fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Returns a counter of a `memory.stat`.
pub(super) fn counter(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| bytes(line.strip_prefix(name)?.strip_prefix(' ')?))
}

/// A version of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Returns the cgroup that a process's `cgroup` file names, in the hierarchy of a version that has
/// this controller.
pub(super) fn cgroup<'a>(text: &'a str, version: Version, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = match version {
            Version::One => controllers.split(',').any(|name| name == controller),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        found.then_some(path)
    })
}

/// Where a hierarchy is mounted: the cgroup that is its top there, and the folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) top: PathBuf,
    pub(super) folder: PathBuf,
}

/// Returns where a process's `mountinfo` says that hierarchy is.
pub(super) fn mount(mountinfo: &str, version: Version, controller: &str) -> Option<Mount> {
    mountinfo.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let found = match version {
            Version::One => name == "cgroup" && options.split(',').any(|part| part == controller),
            Version::Two => name == "cgroup2",
        };
        let mut place = place.split(' ').skip(3);
        let mount = Mount { top: place.next()?.into(), folder: place.next()?.into() };
        found.then_some(mount)
    })
}

impl Mount {
    /// Returns the folders of a cgroup and of those above it, as far as they can be seen.
    ///
    /// A cgroup that does not lie below the mounted one is that of a container that sees its own
    /// as the top.
    pub(super) fn folders(&self, cgroup: &str) -> Vec<PathBuf> {
        let below = Path::new(cgroup).strip_prefix(&self.top).unwrap_or(Path::new(""));
        let own = self.folder.join(below);
        own.ancestors()
            .take_while(|folder| folder.starts_with(&self.folder))
            .map(Path::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_both_versions() {
        let both = "9:name=systemd:/\n4:memory:/jobs/17\n1:cpu:/\n0::/\n";
        assert_eq!(cgroup(both, Version::One, "memory"), Some("/jobs/17"));
        assert_eq!(cgroup(both, Version::Two, "memory"), Some("/"));
        let two = "0::/user.slice/user-1000.slice/session-2.scope\n";
        assert_eq!(cgroup(two, Version::One, "memory"), None);
        assert_eq!(
            cgroup(two, Version::Two, "memory"),
            Some("/user.slice/user-1000.slice/session-2.scope")
        );
        assert_eq!(cgroup("4:cpu,memory:/a:b\n", Version::One, "memory"), Some("/a:b"));
        assert_eq!(cgroup("nothing", Version::One, "memory"), None);
    }

    #[test]
    fn mounts_of_both_versions() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n\
            41 31 0:38 /docker/5 /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        let one = mount(text, Version::One, "memory").unwrap();
        assert_eq!(one, Mount { top: "/".into(), folder: "/sys/fs/cgroup/memory".into() });
        let two = mount(text, Version::Two, "memory").unwrap();
        assert_eq!(two, Mount { top: "/docker/5".into(), folder: "/sys/fs/cgroup/unified".into() });
        assert_eq!(mount("31 23 0:28", Version::Two, "memory"), None);
    }

    #[test]
    fn folders_go_up_to_the_mount() {
        let mount = |top: &str| Mount { top: top.into(), folder: "/sys/fs/cgroup".into() };
        let folders = |top, cgroup| mount(top).folders(cgroup);
        assert_eq!(
            folders("/", "/a/b"),
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from)
        );
        assert_eq!(
            folders("/a", "/a/b"),
            ["/sys/fs/cgroup/b", "/sys/fs/cgroup"].map(PathBuf::from)
        );
        // Of a container whose own cgroup is mounted as the top.
        assert_eq!(folders("/x", "/a/b"), ["/sys/fs/cgroup"].map(PathBuf::from));
    }
}
