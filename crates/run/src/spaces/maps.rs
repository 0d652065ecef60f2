//! What `/proc` says about an address space: its mappings, and how much of its memory is shared.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use crate::core::ranges::{PageNo, Pages, bytes_of, page_of, pages_of};
use crate::spaces::managed::{Managed, lock};
use crate::spaces::sharing::Sharing;
use crate::sys::proc::{self, Status};
use crate::sys::procmap::{self, Vma};
use zfold_uffd::page::page_len;

/// A main stack with fewer bytes stays open: the kernel makes it with 132 KiB, and most programs
/// use a few pages of these all the time.
const STACK_MIN: usize = 256 << 10;

/// A mapping that may have anonymous memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its pages.
    pub pages: Pages,
    /// Writable pages of a file (a program's variables), or a main stack that is too small: it
    /// counts, but is not closed.
    pub other: bool,
}

/// Returns the mappings of a process that have anonymous memory, in order.
///
/// # Errors
/// `ENOENT` or `ESRCH` if it is gone, `EACCES` without the right to trace it.
pub(crate) fn mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps.lines().filter_map(procmap::parse).filter_map(mapping).collect())
}

/// Returns the parts of a range that have anonymous memory, in order, one for each mapping.
///
/// # Errors
/// Same as [`mappings`].
///
/// # Cost
/// A few microseconds, and one for each mapping of the range.
pub(crate) fn mappings_in(pid: i32, pages: &Pages) -> io::Result<Vec<Mapping>> {
    let vmas = procmap::within(pid, &bytes_of(pages))?;
    Ok(vmas.into_iter().filter_map(mapping).collect())
}

/// Returns the mapping that holds a page, if it has anonymous memory.
///
/// # Cost
/// Same as [`mappings_in`].
pub(crate) fn mapping_around(pid: i32, page: PageNo) -> Option<Mapping> {
    mapping(procmap::around(pid, page * page_len()).ok()??)
}

fn mapping(vma: Vma) -> Option<Mapping> {
    let pages = pages_of(&vma.range);
    let is_stack = vma.name == "[stack]";
    let nameless = vma.name.is_empty() || vma.name == "[heap]" || vma.name.starts_with("[anon:");
    let other = (is_stack && vma.range.len() < STACK_MIN) || (vma.file && vma.is_data());
    let counts = vma.private && (other || is_stack || (!vma.file && nameless));
    counts.then_some(Mapping { pages, other })
}

/// Returns the pages that hold a program's arguments and environment, usually on its first stack:
/// readers of these files of `/proc` do not wait for pages. None if they cannot be found.
///
/// # Cost
/// About 10 microseconds.
pub(crate) fn argument_pages(pid: i32) -> Vec<Pages> {
    /// The words of the line, after the name, that say where these two begin and end.
    const PLACES: Range<usize> = 45..49;
    let words = proc::stat_words(pid, PLACES).unwrap_or_default();
    let place = |word: &String| word.parse::<usize>().unwrap_or(0);
    let pages = |ends: &[String]| page_of(place(&ends[0]))..place(&ends[1]).div_ceil(page_len());
    words.chunks_exact(2).map(pages).filter(|pages| !pages.is_empty()).collect()
}

/// A mapping with its marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marked {
    /// Its pages.
    pub pages: Pages,
    /// A userfaultfd fills its missing pages.
    pub registered: bool,
    /// A child of fork finds it empty.
    pub wiped: bool,
}

/// Returns the mappings of a process with their marks, in order.
///
/// # Errors
/// Same as [`mappings`]; also if there are none, as for a main thread that has ended.
///
/// # Cost
/// Same as [`shared_pages`].
fn marked(pid: i32) -> io::Result<Vec<Marked>> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let mut found: Vec<Marked> = Vec::new();
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(last) = found.last_mut() {
                last.registered = flags.split_ascii_whitespace().any(|flag| flag == "um");
                last.wiped = flags.split_ascii_whitespace().any(|flag| flag == "wf");
            }
        } else if let Some(vma) = procmap::parse(line) {
            let pages = pages_of(&vma.range);
            found.push(Marked { pages, registered: false, wiped: false });
        }
    }
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// The same for a space, some of whose threads may have ended.
///
/// # Errors
/// Same as [`marked`].
pub(crate) fn marked_of(managed: &Managed) -> io::Result<Vec<Marked>> {
    marked(managed.pid()).or_else(|error| {
        let tasks = lock(&managed.tasks).clone();
        tasks.into_iter().find_map(|task| marked(task).ok()).ok_or(error)
    })
}

/// `/proc/PID/statm`, opened: how much memory a process has.
#[derive(Debug)]
pub(crate) struct Statm(File);

impl Statm {
    /// Opens it; it stays that of this process, whatever program the process runs.
    ///
    /// # Errors
    /// Same as [`mappings`].
    ///
    /// # Cost
    /// About three microseconds.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/statm")).map(Self)
    }

    /// Returns how many pages of its own the process has, shared ones included; 0 if its main
    /// thread has ended.
    ///
    /// # Errors
    /// Same as [`mappings`].
    ///
    /// # Cost
    /// Less than a microsecond, however large it is.
    pub(crate) fn own_pages(&self) -> io::Result<usize> {
        let mut line = [0; 160];
        let len = self.0.read_at(&mut line, 0)?;
        let words = str::from_utf8(&line[..len]).unwrap_or("").split_ascii_whitespace();
        let mut pages = words.skip(1).map(|word| word.parse().unwrap_or(0));
        let (resident, shared): (usize, usize) =
            (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        Ok(resident.saturating_sub(shared))
    }
}

/// Returns whether a process may have memory that is locked.
///
/// # Cost
/// About 20 microseconds.
pub(crate) fn may_be_locked(pid: i32) -> bool {
    let status = Status::of(pid).ok();
    let locked = status.as_ref().and_then(|status| status.field("VmLck"));
    // It says nothing if the main thread has ended before the others.
    locked.is_none_or(|locked| locked != "0 kB")
}

/// Returns how many page faults of a process the kernel served without waiting; `None` if it is
/// gone.
///
/// # Cost
/// About 10 microseconds.
pub(crate) fn minor_faults(pid: i32) -> Option<usize> {
    /// The word of the line, after the name.
    const MINOR: usize = 7;
    proc::stat(pid, MINOR)?.parse().ok()
}

/// Returns how many pages are counted for this process and also for others: present anonymous
/// memory, less its proportional share.
///
/// # Errors
/// Same as [`mappings`].
///
/// # Cost
/// The kernel walks all page tables of the process: about 10 ns a page.
fn shared_pages(pid: i32) -> io::Result<usize> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name| proc::kib(&rollup, name).unwrap_or(0);
    Ok(field("Anonymous:").saturating_sub(field("Pss_Anon:")) as usize * 1024 / page_len())
}

/// Measures how many pages a space shares with others, and sets that as its credit; returns the
/// number. `sharing` is its state, locked by the caller.
pub(crate) fn measure_shared(managed: &Managed, sharing: &mut Sharing) -> usize {
    let shared = shared_pages(managed.pid()).unwrap_or(0);
    managed.set_credit(shared.min(managed.charged()));
    sharing.seen = None;
    shared
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use zfold_testing::wait_until;

    use super::*;
    use crate::core::ranges::common;

    #[test]
    fn only_memory_of_its_own_is_found() {
        let maps = "\
            55d0a0000-55d0c0000 r-xp 00000000 08:01 1234 /usr/bin/true\n\
            55d0d0000-55d0e0000 rw-p 00000000 00:00 0\n\
            55d0e0000-55d2f0000 rw-p 00000000 00:00 0                          [heap]\n\
            7f0000000000-7f0004000000 ---p 00000000 00:00 0 \n\
            7f0004000000-7f0004010000 rw-p 00000000 00:00 0  [anon:a name]\n\
            7f0004010000-7f0004020000 rw-s 00000000 00:01 77 /dev/zero (deleted)\n\
            7f0004020000-7f0004030000 rw-s 00000000 00:00 0\n\
            7f0004030000-7f0004040000 rw-p 00030000 08:01 1235 /usr/lib/a.so\n\
            7fffc0000-7fffe0000 rw-p 00000000 00:00 0 [stack]\n\
            7fffe0000-7ffff0000 r-xp 00000000 00:00 0 [vdso]\n";
        let plain = |bytes| Mapping { pages: pages_of(&bytes), other: false };
        assert_eq!(
            maps.lines().filter_map(procmap::parse).filter_map(mapping).collect::<Vec<_>>(),
            [
                plain(0x5_5d0d_0000..0x5_5d0e_0000),
                plain(0x5_5d0e_0000..0x5_5d2f_0000),
                plain(0x7f00_0000_0000..0x7f00_0400_0000),
                plain(0x7f00_0400_0000..0x7f00_0401_0000),
                Mapping { other: true, ..plain(0x7f00_0403_0000..0x7f00_0404_0000) },
                Mapping { other: true, ..plain(0x7_fffc_0000..0x7_fffe_0000) },
            ]
        );
        let deep = procmap::parse("7fff00000-7fffe0000 rw-p 00000000 00:00 0 [stack]").unwrap();
        assert_eq!(mapping(deep), Some(plain(0x7_fff0_0000..0x7_fffe_0000)));
    }

    #[test]
    fn a_process_has_a_heap_and_shares_little() {
        // One that changes nothing by itself, unlike this one, whose other tests do.
        let mut tail = Command::new("tail");
        tail.args(["-c", "64M"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut tail = tail.spawn().unwrap();
        let mut input = tail.stdin.take().unwrap();
        let pid = tail.id() as i32;
        input.write_all(&[1; 1 << 20]).unwrap();
        wait_until("a heap", || minor_faults(pid).unwrap() > (1 << 19) / page_len());
        let statm = Statm::open(pid).unwrap();
        let before = statm.own_pages().unwrap();
        input.write_all(&[1; 16 << 20]).unwrap();
        wait_until("more", || statm.own_pages().unwrap() >= before + (15 << 20) / page_len());
        let all = mappings(pid).unwrap();
        let largest = all.iter().max_by_key(|mapping| mapping.pages.len()).unwrap();
        let part = largest.pages.start + 1..largest.pages.end;
        assert_eq!(mappings_in(pid, &part).unwrap()[0].pages.start, part.start);
        assert!(mappings_in(pid, &(0..1)).unwrap().is_empty());
        assert!(shared_pages(pid).unwrap() < 1 << 20);
        assert!(Statm::open(0).is_err());
        let both = argument_pages(pid);
        let stack = procmap::around(pid, both[0].start * page_len()).unwrap().unwrap();
        assert!(both.len() == 2 && stack.name == "[stack]", "{both:?}");
        assert!(both.iter().all(|pages| common(pages, &pages_of(&stack.range)) == *pages));
        assert!(argument_pages(0).is_empty());
        assert!(!may_be_locked(pid) && may_be_locked(0));
        let marked = marked(pid).unwrap();
        assert!(!marked.is_empty() && marked.iter().all(|mapping| !mapping.pages.is_empty()));
        assert!(mappings(0).is_err());
        drop(input);
        assert!(tail.wait().unwrap().success());
    }
}
