//! Reads `/proc`: the memory of processes that is in RAM, their processor time, their descendants.
//!
//! Resident memory is read from `smaps_rollup`, which walks the page tables. `statm` is cheaper,
//! but recent kernels keep its counters per CPU and let them lag by megabytes.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io;

/// Returns the resident bytes of this process that are anonymous: how much of its code and of other
/// files is mapped depends on what else goes on.
///
/// # Errors
///
/// When `/proc` is not mounted or not readable, or has no `Anonymous` line.
///
/// # Cost
///
/// A system call that walks every page table of the process.
pub fn resident_bytes() -> io::Result<u64> {
    rollup("self", "Anonymous:")
}

fn rollup(process: impl Display, name: &str) -> io::Result<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = fs::read_to_string(&path)?;
    bytes(&rollup, name).ok_or_else(|| io::Error::other(format!("{path} has no line {name}")))
}

/// Returns the anonymous memory of a process that is resident, in bytes, pages included that it
/// shares with others; `None` if there is no such process, or it has no memory.
///
/// # Cost
/// About 20 microseconds.
pub fn anonymous_bytes(process: u32) -> Option<u64> {
    bytes(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "RssAnon:")
}

/// The same with only its part of pages that several processes share, so that these count once
/// in a sum over all of them.
///
/// # Cost
/// A system call that walks every page table of the process.
pub fn proportional_anonymous_bytes(process: u32) -> Option<u64> {
    bytes(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?, "Pss_Anon:")
}

/// Returns the bytes in a line `name 123 kB` of a text.
pub fn bytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a process and its descendants, each behind its parent.
///
/// # Cost
/// About 10 microseconds for every process of the system.
pub fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in all() {
        if let Some(parent) = Stat::of(process).ok().and_then(|stat| stat.parent()) {
            children.entry(parent).or_default().push(process);
        }
    }
    descendants(root, children)
}

/// Returns all processes of the system.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Each process is taken from its parent once. So rings, which there are when numbers have been
/// reused while they were read, do no harm.
fn descendants(root: u32, mut children: HashMap<u32, Vec<u32>>) -> Vec<u32> {
    let mut tree = vec![root];
    let mut seen = 0;
    while seen < tree.len() {
        let more = children.remove(&tree[seen]).unwrap_or_default();
        tree.extend(more.into_iter().filter(|&process| process != root));
        seen += 1;
    }
    tree
}

/// The file `stat` of a process.
#[derive(Clone, Debug)]
pub struct Stat(String);

impl Stat {
    /// Reads it.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(process: u32) -> io::Result<Self> {
        fs::read_to_string(format!("/proc/{process}/stat")).map(Self)
    }

    /// Returns the fields from the third on, which follow the name.
    fn fields(&self) -> impl Iterator<Item = &str> {
        // The name before may have brackets and spaces of its own.
        self.0.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace()
    }

    /// Returns a field by its number in proc(5), from 3 on.
    ///
    /// # Panics
    /// If the number is less than 3.
    pub fn field(&self, number: usize) -> Option<&str> {
        assert!(number > 2, "only fields behind the name");
        self.fields().nth(number - 3)
    }

    /// Returns the letter of its state: `R` runs, `Z` has ended and was not waited for.
    pub fn state(&self) -> Option<char> {
        self.field(3)?.chars().next()
    }

    /// Returns its parent.
    pub fn parent(&self) -> Option<u32> {
        self.field(4)?.parse().ok()
    }

    /// Returns the times in two fields from `first` on.
    fn times(&self, first: usize) -> Option<Times> {
        /// In the units that the kernel uses towards user space, on every architecture that Rust's
        /// library runs on.
        const TICKS_PER_SECOND: f64 = 100.0;
        let seconds = |ticks: &str| Some(f64::from(ticks.parse::<u32>().ok()?) / TICKS_PER_SECOND);
        let mut fields = self.fields().skip(first - 3);
        Some(Times { user: seconds(fields.next()?)?, sys: seconds(fields.next()?)? })
    }
}

/// Processor time in seconds, in steps of a clock tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// In user mode.
    pub user: f64,
    /// In the kernel.
    pub sys: f64,
}

/// Returns the processor time of this process, ended threads included.
///
/// # Errors
/// When `/proc` is not mounted or not readable.
pub fn own_times() -> io::Result<Times> {
    times_from(14)
}

/// Returns the processor time of all descendants that have ended and been waited for.
///
/// # Errors
/// As [`own_times`].
pub fn times_of_children() -> io::Result<Times> {
    times_from(16)
}

fn times_from(first: usize) -> io::Result<Times> {
    let times = Stat::of(std::process::id())?.times(first);
    times.ok_or_else(|| io::Error::other("/proc/self/stat has no processor times"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn figures_are_in_kibibytes() {
        let text = "00400000-7fff [rollup]\nRss:     12 kB\nPss:    9 kB\n";
        assert_eq!(bytes(text, "Rss:"), Some(12 * 1024));
        assert_eq!(bytes("Pss:    9 kB\n", "Rss:"), None);
        assert_eq!(bytes("RssFile: 8 kB\nRssAnon:\t  12 kB\n", "RssAnon:"), Some(12 << 10));
    }

    #[test]
    fn fields_follow_the_name_whatever_it_is() {
        let text = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 250 31 8 9 20 0 1 0 5 6 7";
        let stat = Stat(text.to_owned());
        assert_eq!((stat.state(), stat.parent()), (Some('R'), Some(1)));
        assert_eq!(stat.times(14), Some(Times { user: 2.5, sys: 0.31 }));
        assert_eq!(stat.times(16), Some(Times { user: 0.08, sys: 0.09 }));
        assert_eq!(Stat("7 (a) R 1 7".to_owned()).times(14), None);
        assert_eq!(Stat("7 (a".to_owned()).parent(), None);
    }

    #[test]
    fn a_tree_has_all_descendants_and_no_others() {
        let children = HashMap::from([(1, vec![2, 9]), (2, vec![3, 4]), (9, vec![5])]);
        assert_eq!(descendants(2, children), [2, 3, 4]);
        let ring = HashMap::from([(1, vec![2]), (2, vec![3]), (3, vec![1])]);
        assert_eq!(descendants(1, ring), [1, 2, 3]);
    }

    #[test]
    fn a_program_is_seen_with_those_that_it_starts() {
        let mut command = Command::new("sh");
        // The shell stays, as the pipe is not its last command.
        command.args(["-c", "cat | cat; true"]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("sh runs");
        // One that is about to become another program has none for a moment.
        let figures = || tree(child.id()).into_iter().filter_map(anonymous_bytes);
        while figures().filter(|&bytes| bytes > 0).count() < 3 {
            std::thread::yield_now();
        }
        assert_eq!(tree(child.id()).len(), 3);
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
    }
}
