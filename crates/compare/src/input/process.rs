//! The anonymous memory of a live process, through `/proc/PID/{maps,pagemap,mem}`.
//!
//! Needs only what ptrace(2) needs: the same user (where the system allows it) or root, and no
//! capability. Of a pagemap entry only the bits 61 to 63 are used, which all users may see: 63
//! present, 62 swapped out, 61 backed by a file or shared.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use super::error::InputError;
use super::sample::Sampling;
use crate::rng::SplitMix64;

/// Pagemap entries read at once: half a MiB of them, a quarter of a GiB of addresses.
const ENTRIES_AT_ONCE: u64 = 1 << 16;
const ENTRY_BYTES: u64 = 8;

/// Returns sampled pages of the process in the order of their addresses, and how many there are.
pub(super) fn read_anonymous(
    pid: u32,
    page_size: usize,
    sampling: Sampling,
) -> Result<(Vec<u8>, u64), InputError> {
    let failed = |source| InputError::unreadable_process(pid, source);
    let system_page = rustix::param::page_size() as u64;
    // Pages larger than the system's are taken where all of their parts qualify.
    let block = (page_size as u64).max(system_page);
    let blocks = find_blocks(pid, system_page, block).map_err(failed)?;
    let wanted = (sampling.limit_bytes / block).max(1);
    let picks = SplitMix64::new(sampling.seed).sample(blocks.len() as u64, wanted);
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed)?;
    let mut bytes = Vec::with_capacity(picks.len() * block as usize);
    let mut buffer = vec![0; block as usize];
    for pick in picks {
        // A page that is gone meanwhile, or that the kernel will not show, is left out.
        if memory.read_exact_at(&mut buffer, blocks[pick as usize]).is_ok() {
            bytes.extend_from_slice(&buffer);
        }
    }
    let population = blocks.len() as u64 * (block / page_size as u64);
    Ok((bytes, population))
}

/// Returns the addresses of all anonymous blocks, ascending.
fn find_blocks(pid: u32, system_page: u64, block: u64) -> io::Result<Vec<u64>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut blocks = Vec::new();
    let chunk = ENTRIES_AT_ONCE * system_page;
    for region in maps.lines().filter_map(anonymous_region) {
        let mut start = region.start.next_multiple_of(block);
        while start + block <= region.end {
            let len = (region.end - start).min(chunk) / block * block;
            let entries = read_entries(&pagemap, start, len, system_page)?;
            let parts = (block / system_page) as usize;
            for (index, parts) in entries.chunks_exact(parts).enumerate() {
                if parts.iter().all(|&entry| is_anonymous(entry)) {
                    blocks.push(start + index as u64 * block);
                }
            }
            start += len;
        }
    }
    Ok(blocks)
}

/// Returns the pagemap entries of `len` bytes at `start`.
fn read_entries(pagemap: &File, start: u64, len: u64, system_page: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; (len / system_page * ENTRY_BYTES) as usize];
    pagemap.read_exact_at(&mut bytes, start / system_page * ENTRY_BYTES)?;
    let (entries, rest) = bytes.as_chunks();
    assert!(rest.is_empty(), "the buffer holds whole entries");
    Ok(entries.iter().map(|&entry| u64::from_ne_bytes(entry)).collect())
}

/// Returns whether a pagemap entry is of a page that exists and belongs to no file.
fn is_anonymous(entry: u64) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    const FILE_OR_SHARED: u64 = 1 << 61;
    entry & PRESENT_OR_SWAPPED != 0 && entry & FILE_OR_SHARED == 0
}

/// Returns the addresses of a line of `maps` when it may hold anonymous memory to be read:
/// private and writable, and neither a stack (arguments, environment) nor the kernel's own.
fn anonymous_region(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let name = fields.nth(3).unwrap_or("");
    let special = name.starts_with('[') && name != "[heap]" && !name.starts_with("[anon");
    if !permissions.starts_with("rw") || !permissions.ends_with('p') || special {
        return None;
    }
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_writable_memory_but_stacks_is_a_region() {
        for (line, expected) in [
            ("55d0-55f0 rw-p 00000000 00:00 0                [heap]", Some(0x55d0..0x55f0)),
            ("7f00-7f10 rw-p 00000000 00:00 0 ", Some(0x7f00..0x7f10)),
            ("7f00-7f10 rw-p 00000000 00:00 0 [anon:arena]", Some(0x7f00..0x7f10)),
            ("7f00-7f10 rw-p 00001000 08:01 1234 /usr/lib/libc.so.6", Some(0x7f00..0x7f10)),
            ("7ffc-7ffd rw-p 00000000 00:00 0 [stack]", None),
            ("7ffc-7ffd r--p 00000000 00:00 0 [vvar]", None),
            ("7ffc-7ffd rw-s 00000000 00:01 9 /dev/zero (deleted)", None),
            ("7ffc-7ffd r--p 00000000 00:00 0", None),
            ("not a line of maps", None),
            ("", None),
        ] {
            assert_eq!(anonymous_region(line), expected, "{line}");
        }
    }

    #[test]
    fn only_existing_pages_without_a_file_are_anonymous() {
        assert!(is_anonymous(1 << 63));
        assert!(is_anonymous(1 << 62));
        assert!(!is_anonymous(1 << 63 | 1 << 61));
        assert!(!is_anonymous(0));
    }
}
