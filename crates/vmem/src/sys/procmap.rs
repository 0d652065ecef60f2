//! Where a mapping of another process ends, without reading all of them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsRawFd;

use linux_raw_sys::general as raw;

/// `PROCMAP_QUERY`: number 17 of the type 'f', which takes and returns the structure.
const QUERY: libc::c_ulong = (3 << 30)
    | ((size_of::<raw::procmap_query>() as libc::c_ulong) << 16)
    | ((b'f' as libc::c_ulong) << 8)
    | 17;

/// Returns the address behind the mapping of a process that holds `address`.
///
/// # Errors
/// `ENOENT` if there is none; those of opening `/proc/PID/maps`.
///
/// # Cost
/// A few microseconds; with kernels before 6.11, some 100 ns for each mapping.
pub(crate) fn end_of_mapping(pid: i32, address: usize) -> io::Result<usize> {
    let maps = File::open(format!("/proc/{pid}/maps"))?;
    let mut query = raw::procmap_query {
        size: size_of::<raw::procmap_query>() as u64,
        query_flags: 0,
        query_addr: address as u64,
        vma_start: 0,
        vma_end: 0,
        vma_flags: 0,
        vma_page_size: 0,
        vma_offset: 0,
        inode: 0,
        dev_major: 0,
        dev_minor: 0,
        vma_name_size: 0,
        build_id_size: 0,
        vma_name_addr: 0,
        build_id_addr: 0,
    };
    // SAFETY: the structure is the one that this number names and lives across the call; it asks
    // for no name, so that the kernel writes nothing else.
    if unsafe { libc::ioctl(maps.as_raw_fd(), QUERY, &raw mut query) } == 0 {
        return Ok(query.vma_end as usize);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOTTY) {
        return Err(error);
    }
    find(BufReader::new(maps).lines().map_while(Result::ok), address)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn find(mut lines: impl Iterator<Item = String>, address: usize) -> Option<usize> {
    lines.find_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let number = |hex| usize::from_str_radix(hex, 16).ok();
        let range = number(start)?..number(end)?;
        range.contains(&address).then_some(range.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing;

    #[test]
    fn a_mapping_ends_where_its_protection_does() {
        const PAGE: usize = 4096;
        let start = testing::window(4 * PAGE).start;
        assert_eq!(testing::map(start, 4 * PAGE, true), start as i64);
        let pid = std::process::id() as i32;
        assert_eq!(end_of_mapping(pid, start).unwrap(), start + 4 * PAGE);
        testing::protect(&(start + PAGE..start + 2 * PAGE), false);
        assert_eq!(end_of_mapping(pid, start).unwrap(), start + PAGE);
        assert_eq!(end_of_mapping(pid, start + 3 * PAGE).unwrap(), start + 4 * PAGE);
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = find(text.lines().map(str::to_owned), start + PAGE);
        assert_eq!(found, Some(start + 2 * PAGE), "the other way");
        assert_eq!(testing::unmap(&(start..start + 4 * PAGE)), 0);
        assert!(end_of_mapping(pid, start).is_err());
    }
}
