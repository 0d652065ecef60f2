//! Pages that the kernel merges with equal ones (KSM): it forgets that they were protected, and
//! refuses to move them. In processes of their own, since a process is merged as a whole.

use std::fs::{File, read_to_string, write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use zfold_region::{FaultMode, Region};
use zfold_testing::{skip, wait_until};

use super::processes::succeeds;
use super::protected::there;
use super::{MIB, PAGE, fill, once};

const PR_SET_MEMORY_MERGE: libc::c_int = 67;

/// The kernel merges as fast as it can, and as it did before when this is dropped.
pub(super) struct Merging {
    before: Vec<(PathBuf, String)>,
    /// Locked: no other test changes the settings meanwhile.
    _alone: File,
}

impl Merging {
    /// Begins it, or says why not.
    pub(super) fn begin() -> Option<Self> {
        let at = |name: &str| PathBuf::from("/sys/kernel/mm/ksm").join(name);
        let alone = File::options().read(true).write(true).open(at("run"));
        let alone = alone.inspect_err(|error| skip(format_args!("KSM: {error}"))).ok()?;
        flock(&alone, FlockOperation::LockExclusive).unwrap();
        let mut this = Self { before: Vec::new(), _alone: alone };
        for (name, value) in [("pages_to_scan", "5000"), ("sleep_millisecs", "0"), ("run", "1")] {
            this.before.push((at(name), read_to_string(at(name)).unwrap()));
            write(at(name), value).unwrap();
        }
        Some(this)
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        self.before.iter().rev().for_each(|(path, value)| write(path, value.trim()).unwrap());
    }
}

/// Asks for merging of the whole process, or no longer.
pub(super) fn merge_process(on: bool) {
    // SAFETY: changes where contents lie, not what they are.
    let result = unsafe { libc::prctl(PR_SET_MEMORY_MERGE, libc::c_ulong::from(on), 0, 0, 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Gives advice on all of a region that keeps its contents.
pub(super) fn advise(region: &Region, advice: libc::c_int) {
    // SAFETY: see above. Some of it is refused, as the test wants it.
    unsafe { libc::madvise(region.as_ptr().cast(), region.len(), advice) };
}

/// Waits until the kernel has looked at all pages often enough to have merged them.
fn await_merging() {
    let scans = || -> u64 {
        read_to_string("/sys/kernel/mm/ksm/full_scans").unwrap().trim().parse().unwrap()
    };
    let first = scans();
    wait_until("pages are merged", || scans() >= first + 5);
}

/// Fills a page as three others are.
fn fill_like_others(page: &mut [u8], number: usize) {
    fill(page, number as u64 / 4, 1);
}

fn is_like_others(page: &[u8], number: usize) -> bool {
    let mut right = [0; PAGE];
    fill_like_others(&mut right, number);
    page == right
}

/// Pages that came back protected are merged and then written; others that are merged leave. In
/// either case each page is what was written last.
fn no_write_is_lost(merge: impl Fn(&Region)) {
    for mode in [FaultMode::InThread, FaultMode::Thread] {
        let Some(mut region) = super::region(8 * MIB, 2 * MIB, mode) else { continue };
        let pages = region.as_mut_slice::<u8>().chunks_mut(PAGE).enumerate();
        pages.for_each(|(number, page)| fill_like_others(page, number));
        for _ in 0..4 {
            let mut pages = region.as_slice::<u8>().chunks(PAGE).enumerate();
            assert!(pages.all(|(number, page)| is_like_others(page, number)));
        }
        // Most of them came back protected.
        let there = (0..).zip(there(&region)).filter_map(|(page, is)| is.then_some(page));
        let there: Vec<usize> = there.collect();
        merge(&region);
        await_merging();
        // Half of them: the others leave as they were merged.
        let change = |region: &mut Region| {
            let pages = there.iter().step_by(2);
            pages.for_each(|page| region.as_mut_slice::<u8>()[page * PAGE] ^= 1);
        };
        change(&mut region);
        region.pageout(..).unwrap();
        change(&mut region);
        let pages = (0..).zip(region.as_slice::<u8>().chunks(PAGE));
        let lost = pages.filter(|&(number, page)| !is_like_others(page, number)).count();
        assert!(lost == 0, "{mode:?}: {lost} of {} writes", there.len() / 2);
        // Of pages that are merged, the kernel moves none.
        merge(&region);
        await_merging();
        once(region.memory(), |stats| (stats.resident_pages == 0, region.pageout(..).unwrap()).0);
    }
}

pub(super) fn from_the_beginning() {
    merge_process(true);
    no_write_is_lost(|_| {});
}

pub(super) fn by_the_process() {
    no_write_is_lost(|_| {
        merge_process(false);
        merge_process(true);
    });
}

pub(super) fn by_advice() {
    no_write_is_lost(|region| advise(region, libc::MADV_MERGEABLE));
}

#[test]
fn no_write_is_lost_whoever_asks_for_merging() {
    let Some(_merging) = Merging::begin() else { return };
    for scenario in ["merged from the beginning", "merged by the process", "merged by advice"] {
        succeeds(scenario);
    }
}
