//! What the kernel says of an address space in `/proc`: its mappings, and how much of its memory
//! is shared.

use std::fs;
use std::io;

use super::ranges::{PAGE, Pages, pages_of};

/// A mapping that has anonymous memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its pages.
    pub pages: Pages,
    /// Nothing can be in it: it may not be accessed, only reserved.
    pub reserved: bool,
    /// It is the heap that brk moves the end of.
    pub heap: bool,
    /// It is the stack, or writable pages of a file (a program's variables): it counts, but cannot
    /// be closed.
    pub other: bool,
}

/// Returns the mappings of a process that have anonymous memory, in order.
///
/// # Errors
/// `ENOENT` or `ESRCH` if it is gone, `EACCES` without the right to trace it.
pub(crate) fn mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps.lines().filter_map(parse).collect())
}

/// A line: `start-end perms offset device inode path`.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let perms = words.next()?;
    let inode = words.nth(2)?;
    let path = words.next().unwrap_or("");
    let nameless = path.is_empty() || path == "[heap]" || path.starts_with("[anon:");
    let other = path == "[stack]" || (inode != "0" && perms == "rw-p");
    if !perms.ends_with('p') || !(other || (inode == "0" && nameless)) {
        return None;
    }
    let number = |hex| usize::from_str_radix(hex, 16).ok();
    let pages = pages_of(&(number(start)?..number(end)?));
    Some(Mapping { pages, reserved: perms.starts_with("---"), heap: path == "[heap]", other })
}

/// Returns how many pages are counted for this process and also for others: what is there of
/// anonymous memory, less its proportional share.
///
/// # Errors
/// As of [`mappings`].
///
/// # Cost
/// The kernel walks all page tables of the process: some 10 ns a page.
pub(crate) fn shared_pages(pid: i32) -> io::Result<usize> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next());
        kib.and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0)
    };
    Ok(field("Anonymous:").saturating_sub(field("Pss_Anon:")) * 1024 / PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_its_own_is_found() {
        let maps = "\
            55d0a000-55d0c000 r-xp 00000000 08:01 1234 /usr/bin/true\n\
            55d0d000-55d0e000 rw-p 00000000 00:00 0\n\
            55d0e000-55d2f000 rw-p 00000000 00:00 0                          [heap]\n\
            7f0000000000-7f0004000000 ---p 00000000 00:00 0 \n\
            7f0004000000-7f0004001000 rw-p 00000000 00:00 0  [anon:a name]\n\
            7f0004001000-7f0004002000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
            7f0004002000-7f0004003000 rw-s 00000000 00:00 0\n\
            7f0004003000-7f0004004000 rw-p 00003000 08:01 1235 /usr/lib/a.so\n\
            7ffc0000-7ffe0000 rw-p 00000000 00:00 0 [stack]\n\
            7ffe1000-7ffe3000 r-xp 00000000 00:00 0 [vdso]\n";
        let found: Vec<_> = maps.lines().filter_map(parse).collect();
        let plain = |pages| Mapping { pages, reserved: false, heap: false, other: false };
        assert_eq!(
            found,
            [
                plain(0x55d0d..0x55d0e),
                Mapping { heap: true, ..plain(0x55d0e..0x55d2f) },
                Mapping { reserved: true, ..plain(0x7f0000000..0x7f0004000) },
                plain(0x7f0004000..0x7f0004001),
                Mapping { other: true, ..plain(0x7f0004003..0x7f0004004) },
                Mapping { other: true, ..plain(0x7ffc0..0x7ffe0) },
            ]
        );
        assert_eq!(parse("rubbish"), None);
    }

    #[test]
    fn this_process_has_a_heap_and_shares_little() {
        let pid = std::process::id() as i32;
        assert!(!mappings(pid).unwrap().is_empty());
        assert!(shared_pages(pid).unwrap() < 1 << 20);
        assert!(mappings(0).is_err());
    }
}
