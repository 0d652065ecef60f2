//! The memory of a process that is in RAM.
//!
//! Read from `smaps_rollup` in `/proc`, which walks the page tables. `statm` is cheaper, but recent
//! kernels keep its counters per CPU and let them lag by megabytes.

use std::io;

/// Returns the resident bytes of this process.
///
/// # Errors
///
/// When `/proc` is not mounted or not readable, or has no `Rss` line.
///
/// # Cost
///
/// A system call that walks every page table of the process.
pub fn resident_bytes() -> io::Result<u64> {
    rss("/proc/self/smaps_rollup")
}

/// Returns the resident bytes of another process, as [`resident_bytes`] does of this one.
///
/// # Errors
///
/// As [`resident_bytes`]; also when there is no such process, or it is another user's.
pub fn resident_bytes_of(process: u32) -> io::Result<u64> {
    rss(&format!("/proc/{process}/smaps_rollup"))
}

fn rss(path: &str) -> io::Result<u64> {
    let rollup = std::fs::read_to_string(path)?;
    parse_rss(&rollup).ok_or_else(|| io::Error::other(format!("{path} has no Rss line")))
}

/// Returns the `Rss:` figure of a `smaps_rollup` text in bytes.
fn parse_rss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim();
    kibibytes.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_in_kibibytes() {
        let text = "00400000-7fff [rollup]\nRss:     12 kB\nPss:    9 kB\n";
        assert_eq!(parse_rss(text), Some(12 * 1024));
    }

    #[test]
    fn missing_figure_is_none() {
        assert_eq!(parse_rss("Pss:    9 kB\n"), None);
    }

    #[test]
    fn touched_memory_is_seen_exactly() {
        let before = resident_bytes().expect("proc is mounted");
        let touched = std::hint::black_box(vec![1_u8; 256 << 20]);
        let after = resident_bytes().expect("proc is mounted");
        let grown = after - before;
        let wanted = touched.len() as u64;
        assert!(grown >= wanted - (64 << 20), "{grown}");
        assert!(grown <= wanted + (128 << 20), "{grown}");
    }
}
