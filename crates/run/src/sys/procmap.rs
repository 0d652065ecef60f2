//! The mappings of another process, without reading all of them.
//!
//! There is one query for each mapping, and an answer describes the moment of its query, so the
//! answers about a running program need not be consistent. Kernels before 6.11 have no such query:
//! there the text of `maps` is read up to the place. Only the query is unsafe; all its pointers are
//! to values that live across the call.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _};
use std::ops::Range;
use std::os::fd::AsRawFd;

use linux_raw_sys::general as raw;
use raw::procmap_query_flags as flags;

/// `PROCMAP_QUERY`: number 17 of the type 'f', which takes and returns the structure.
const QUERY: libc::Ioctl =
    ((3_u32 << 30) | ((size_of::<raw::procmap_query>() as u32) << 16) | ((b'f' as u32) << 8) | 17)
        as libc::Ioctl;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vma {
    /// Its addresses.
    pub range: Range<usize>,
    /// Not shared with other processes.
    pub private: bool,
    /// What the program may do there: bits of `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub protection: u8,
    /// Of a file.
    pub file: bool,
    /// The kernel's name for it; usually empty.
    pub name: String,
}

/// The bits of [`Vma::protection`].
pub(crate) const READ: u8 = libc::PROT_READ as u8;
/// Same as above.
pub(crate) const WRITE: u8 = libc::PROT_WRITE as u8;
/// Same as above.
pub(crate) const EXECUTE: u8 = libc::PROT_EXEC as u8;

impl Vma {
    /// Returns whether it can be written to, and not executed.
    pub(crate) fn is_data(&self) -> bool {
        self.protection & (WRITE | EXECUTE) == WRITE
    }
}

/// Returns the parts of a range of addresses that are mapped in a process, in order, one for each
/// mapping.
///
/// # Errors
/// Those of opening and reading `/proc/PID/maps`: the process is gone.
///
/// # Cost
/// A few microseconds, and one for each mapping; with kernels before 6.11, for each also about 100
/// ns for every mapping before it.
pub(crate) fn within(pid: i32, range: &Range<usize>) -> io::Result<Vec<Vma>> {
    let mut found = touching(pid, range)?;
    for vma in &mut found {
        vma.range = vma.range.start.max(range.start)..vma.range.end.min(range.end);
    }
    Ok(found)
}

/// Returns the mappings of a process that have a part of a range of addresses, in order.
///
/// # Errors
/// Same as [`within`].
///
/// # Cost
/// Same as [`within`].
pub(crate) fn touching(pid: i32, range: &Range<usize>) -> io::Result<Vec<Vma>> {
    let mut maps = Maps(File::open(format!("/proc/{pid}/maps"))?);
    let mut found = Vec::new();
    let mut at = range.start;
    while at < range.end
        && let Some(vma) = maps.at_or_behind(at)?
        && vma.range.start < range.end
    {
        at = vma.range.end;
        found.push(vma);
    }
    Ok(found)
}

/// Returns the mapping of a process that holds an address.
///
/// # Errors
/// Same as [`within`].
///
/// # Cost
/// Same as [`within`], for one mapping.
pub(crate) fn around(pid: i32, address: usize) -> io::Result<Option<Vma>> {
    Ok(at_or_behind(pid, address)?.filter(|vma| vma.range.contains(&address)))
}

/// Returns the mapping of a process that holds an address, otherwise the next one.
///
/// # Errors
/// Same as [`within`].
///
/// # Cost
/// Same as [`within`], for one mapping.
pub(crate) fn at_or_behind(pid: i32, address: usize) -> io::Result<Option<Vma>> {
    Maps(File::open(format!("/proc/{pid}/maps"))?).at_or_behind(address)
}

/// The mappings of a process.
#[derive(Debug)]
struct Maps(File);

impl Maps {
    /// Returns the mapping that holds `address`, otherwise the next one; `None` after the last.
    fn at_or_behind(&mut self, address: usize) -> io::Result<Option<Vma>> {
        let mut name = [0_u8; 128];
        let mut query = raw::procmap_query {
            size: size_of::<raw::procmap_query>() as u64,
            query_flags: flags::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64,
            query_addr: address as u64,
            vma_start: 0,
            vma_end: 0,
            vma_flags: 0,
            vma_page_size: 0,
            vma_offset: 0,
            inode: 0,
            dev_major: 0,
            dev_minor: 0,
            vma_name_size: name.len() as u32,
            build_id_size: 0,
            vma_name_addr: name.as_mut_ptr() as u64,
            build_id_addr: 0,
        };
        // SAFETY: the structure is the one that this number names, and lives across the call like
        // the room for a name, whose size it tells.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), QUERY, &raw mut query) } == 0;
        let error = io::Error::last_os_error();
        if done || error.raw_os_error() == Some(libc::ENAMETOOLONG) {
            let is = |flag: flags| query.vma_flags & flag as u64 != 0;
            let bit = |flag, bit| if is(flag) { bit } else { 0 };
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
            return Ok(Some(Vma {
                range: query.vma_start as usize..query.vma_end as usize,
                private: !is(flags::PROCMAP_QUERY_VMA_SHARED),
                protection: bit(flags::PROCMAP_QUERY_VMA_READABLE, READ)
                    | bit(flags::PROCMAP_QUERY_VMA_WRITABLE, WRITE)
                    | bit(flags::PROCMAP_QUERY_VMA_EXECUTABLE, EXECUTE),
                file: query.inode != 0,
                name: name.to_string_lossy().into_owned(),
            }));
        }
        match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(None),
            Some(libc::ENOTTY) => {
                self.0.rewind()?;
                let lines = BufReader::new(&self.0).lines().map_while(Result::ok);
                Ok(lines.filter_map(|line| parse(&line)).find(|vma| vma.range.end > address))
            }
            _ => Err(error),
        }
    }
}

/// Returns the mapping in a line of `/proc/PID/maps`: `start-end perms offset device inode path`.
pub(crate) fn parse(line: &str) -> Option<Vma> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |hex| usize::from_str_radix(hex, 16).ok();
    let perms = words.next()?.as_bytes();
    let bit = |at: usize, letter, bit| if perms.get(at) == Some(&letter) { bit } else { 0 };
    let file = words.nth(2)? != "0";
    Some(Vma {
        range: number(start)?..number(end)?,
        private: perms.get(3) == Some(&b'p'),
        protection: bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', EXECUTE),
        file,
        name: words.next().unwrap_or("").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::tests as testing;
    use zfold_uffd::page::page_len;

    #[test]
    fn a_mapping_ends_where_its_protection_does() {
        let start = testing::window(4 * page_len()).start;
        assert_eq!(testing::map(start, 4 * page_len(), true), start as i64);
        let pid = std::process::id() as i32;
        let mut maps = Maps(File::open("/proc/self/maps").unwrap());
        let mut at = |address| maps.at_or_behind(address).unwrap().unwrap();
        let whole = at(start + page_len());
        assert_eq!(whole.range, start..start + 4 * page_len());
        assert!(whole.private && whole.is_data() && !whole.file && whole.name.is_empty());
        testing::protect(&(start + page_len()..start + 2 * page_len()), false);
        assert_eq!(at(start).range.end, start + page_len());
        assert_eq!(at(start + page_len()).protection, READ);
        assert_eq!(around(pid, start + 5).unwrap().unwrap().range, start..start + page_len());
        let last = at(start + 3 * page_len());
        assert_eq!(last.range, start + 2 * page_len()..start + 4 * page_len());
        let parts = within(pid, &(start..start + 3 * page_len())).unwrap();
        let parts: Vec<_> = parts.into_iter().map(|vma| vma.range).collect();
        let ends = [start, start + page_len(), start + 2 * page_len(), start + 3 * page_len()];
        assert_eq!(parts, [ends[0]..ends[1], ends[1]..ends[2], ends[2]..ends[3]]);
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text.lines().filter_map(parse).any(|vma| vma == last), "the other way");
        assert_eq!(testing::unmap(&(start..start + 4 * page_len())), 0);
        assert_ne!(at(start).range.start, start);
        assert_eq!(maps.at_or_behind(usize::MAX).unwrap(), None);
        assert_eq!(within(pid, &(start..start + 4 * page_len())).unwrap(), []);
        assert!(within(0, &(0..1)).is_err());
    }

    #[test]
    fn a_line_says_what_a_mapping_is() {
        let vma = |line| parse(line).unwrap();
        let heap = vma("55d0e000-55d2f000 rw-p 00000000 00:00 0                 [heap]");
        assert!(heap.private && heap.is_data() && !heap.file);
        assert_eq!((heap.range, &*heap.name), (0x55d0_e000..0x55d2_f000, "[heap]"));
        let file = vma("7f0004003000-7f0004004000 rw-s 00003000 08:01 1235 /usr/lib/a.so");
        assert!(!file.private && file.file);
        let code = vma("55d0a000-55d0c000 rwxp 00000000 00:00 0");
        assert!(!code.is_data() && code.protection == READ | WRITE | EXECUTE);
        assert_eq!(vma("55d0a000-55d0c000 ---p 00000000 00:00 0").protection, 0);
        assert_eq!(parse("rubbish"), None);
    }
}
