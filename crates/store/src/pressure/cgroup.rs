//! The own cgroup, and those above it: where they are, and the files that tell of their memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::parse::{self, Version};

/// The controller of memory.
pub(super) const MEMORY: &str = "memory";

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
