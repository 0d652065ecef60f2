//! Private anonymous mappings, and tables of atomic words in them, which cost memory only where
//! they are touched.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use zfold_pool::advice::advise_many;
use zfold_pool::process::Process;
use zfold_uffd::DONTNEED_LOCKED;
use zfold_uffd::page::page_len;

/// Returns whether the page that begins at an address of this process is in memory.
pub(crate) fn is_there(page: usize) -> bool {
    let mut there = 0;
    let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(page);
    // SAFETY: the call reads no memory of the program; it writes a byte for each page, of which
    // there is one, into `there`.
    let result = unsafe { libc::mincore(start, page_len(), &raw mut there) };
    result == 0 && there & 1 != 0
}

/// Returns whether [`drop_many`] works here.
pub(crate) fn can_drop_many() -> bool {
    let Ok(map) = Mapping::new(page_len()) else { return false };
    let all = map.range(0..1);
    map.touch(0);
    // SAFETY: the mapping was made just now, and nobody uses it.
    let dropped = unsafe { drop_many(std::slice::from_ref(&all)) };
    // An emulator may take the call and do nothing.
    dropped == [true] && !is_there(all.start)
}

/// Drops the contents of up to 1024 ranges of pages by one call. Returns for each whether the
/// system did it; if not, a part may be dropped all the same, unless it is a single page.
///
/// # Safety
/// No thread writes these pages meanwhile, or expects their contents afterwards.
pub(crate) unsafe fn drop_many(ranges: &[Range<usize>]) -> Vec<bool> {
    let vectors: Vec<_> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(range.start),
            iov_len: range.len(),
        })
        .collect();
    let mut dropped = vec![false; ranges.len()];
    let mut next = 0;
    while next < ranges.len() {
        // SAFETY: the caller has given up the ranges.
        let bytes = unsafe { advise_many(&vectors[next..], libc::MADV_DONTNEED) };
        let mut bytes = bytes.unwrap_or(0);
        while next < ranges.len() && bytes >= ranges[next].len() {
            bytes -= ranges[next].len();
            dropped[next] = true;
            next += 1;
        }
        // It stopped at this one.
        next += 1;
    }
    dropped
}

/// Takes pages out of the kernel's merging of equal pages (KSM), and gives those that were merged
/// pages of their own again. Returns whether none of them is merged from now on, until a thread of
/// this process asks for that once more.
///
/// # Cost
/// A system call, and a copy of each page that was merged.
pub(crate) fn unmerge(pages: &Range<usize>) -> bool {
    let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(pages.start);
    // SAFETY: the advice changes where contents lie, not what they are.
    match unsafe { libc::madvise(start, pages.len(), libc::MADV_UNMERGEABLE) } {
        0 => true,
        // The kernel has no such merging.
        _ => io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL),
    }
}

/// A mapping of whole pages, zeros at first; unmapped when dropped by the process that made it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    owner: Process,
}

// SAFETY: address and length of memory of the process; nothing of it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: same as above; each method says what shared references allow.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// The system's; `ENOMEM` if there is no such address space.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(page_len());
        let len = len.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap never returns page zero");
        Ok(Self { base, len, owner: Process::current() })
    }

    /// Maps memory whose contents the caller manages: without huge pages, not locked, not merged
    /// with equal pages, and not inherited by a fork.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn managed(len: usize) -> io::Result<Self> {
        let this = Self::new(len)?;
        // A kernel without huge pages refuses the first advice, which does no harm.
        let _ = this.advise(libc::MADV_NOHUGEPAGE);
        this.advise(libc::MADV_DONTFORK)?;
        // In a process whose memory is merged (PR_SET_MEMORY_MERGE), the kernel marks each mapping.
        unmerge(&this.range(0..this.len / page_len()));
        // SAFETY: the range was mapped just now. A process that locks all its memory
        // (MCL_FUTURE) has locked and filled it; it must be empty.
        unsafe { libc::munlock(this.base.as_ptr().cast(), this.len) };
        this.advise(libc::MADV_DONTNEED)?;
        Ok(this)
    }

    /// Gives advice that keeps the contents, or advice on a mapping that is not used yet.
    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this mapping; see above.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Addresses of some of its pages.
    pub(crate) fn range(&self, pages: Range<usize>) -> Range<usize> {
        assert!(pages.start <= pages.end && pages.end * page_len() <= self.len);
        let base = self.base.as_ptr().expose_provenance();
        base + pages.start * page_len()..base + pages.end * page_len()
    }

    /// Drops the contents of some pages.
    ///
    /// # Safety
    /// No code reads or writes them during the call, or expects their contents afterwards.
    pub(crate) unsafe fn drop_pages(&self, pages: Range<usize>) {
        let range = self.range(pages);
        if range.is_empty() {
            return;
        }
        let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(range.start);
        // The plain advice first, which is refused only for locked memory: QEMU accepts the other
        // one and does nothing.
        for advice in [libc::MADV_DONTNEED, DONTNEED_LOCKED] {
            // SAFETY: the range lies inside this mapping, and the caller has given up its contents.
            if unsafe { libc::madvise(start, range.len(), advice) } == 0 {
                return;
            }
        }
    }

    /// Touches a page, as reading a byte of it does.
    pub(crate) fn touch(&self, page: usize) {
        assert!(page * page_len() < self.len);
        // SAFETY: inside the mapping.
        let byte = unsafe { self.base.add(page * page_len()) };
        // SAFETY: mapped and readable for the lifetime of `self`; the value is not used.
        unsafe { byte.as_ptr().read_volatile() };
    }

    /// Some of its pages as bytes.
    ///
    /// # Safety
    /// While the result is in use, no code writes these pages or removes them.
    pub(crate) unsafe fn bytes(&self, pages: Range<usize>) -> &[u8] {
        assert!(pages.start <= pages.end && pages.end * page_len() <= self.len);
        // SAFETY: inside the mapping.
        let start = unsafe { self.base.add(pages.start * page_len()) };
        // SAFETY: mapped for the lifetime of `self`; the caller keeps others away.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), pages.len() * page_len()) }
    }

    /// Some of its pages as bytes that only the caller uses.
    pub(crate) fn bytes_mut(&mut self, pages: Range<usize>) -> &mut [u8] {
        assert!(pages.start <= pages.end && pages.end * page_len() <= self.len);
        // SAFETY: inside the mapping.
        let start = unsafe { self.base.add(pages.start * page_len()) };
        // SAFETY: mapped and initialised (zeros) for the lifetime of `self`, which is borrowed
        // uniquely.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), pages.len() * page_len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child has not inherited managed mappings: something else may lie there.
        if self.owner.is_current() {
            // SAFETY: the mapping is this value's own, whose use ends here.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// Pages of zeros that cannot be written.
#[derive(Debug)]
pub(crate) struct Zeros(Mapping);

impl Zeros {
    /// Maps `pages` pages.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn new(pages: usize) -> io::Result<Self> {
        Mapping::new(pages * page_len()).map(Self)
    }

    /// The first `pages` of them.
    pub(crate) fn pages(&self, pages: usize) -> &[u8] {
        // SAFETY: the mapping is this value's own, which lends it out for reading only.
        unsafe { self.0.bytes(0..pages) }
    }
}

/// A table of atomic words, zeros at first.
#[derive(Debug)]
pub(crate) struct Words {
    map: Mapping,
    len: usize,
}

impl Words {
    /// Returns a table of `len` words.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<AtomicU32>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map: Mapping::new(bytes)?, len })
    }
}

impl std::ops::Index<usize> for Words {
    type Output = AtomicU32;

    #[inline]
    fn index(&self, at: usize) -> &AtomicU32 {
        assert!(at < self.len, "word {at} of {}", self.len);
        let words: NonNull<AtomicU32> = self.map.base.cast();
        // SAFETY: at < len, and the mapping holds that many.
        let word = unsafe { words.add(at) };
        // SAFETY: mapped for the lifetime of `self`, aligned (the base is page aligned), zeros are
        // a valid word, and it is only accessed as an atomic.
        unsafe { word.as_ref() }
    }
}
