//! Imports a memory file into pages of the store, and exports pages to a memory file.
//!
//! Both are sparse: holes of a file are not read, and zeros are not written. Both use one buffer of
//! memory, however long the file is.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use zfold_store::{Content, files};
use zfold_uffd::page::{PAGE, is_zero};
use zfold_uffd::present::is_any_there;

use super::error::ImageError;
use super::image::Image;
use super::page_set::PageSet;

/// Bytes of a file that are read or written at once.
const BUFFER: usize = 1 << 20;

/// What an import found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Pages of the file, holes included.
    pub pages: u64,
    /// Of these, pages that were stored: not zeros, or different from the base.
    pub stored_pages: u64,
    /// Pages that were read.
    pub read_pages: u64,
}

/// Returns the pages of a memory file.
///
/// # Errors
/// It has no pages, or ends within one.
pub(super) fn pages_of(file: &File) -> Result<u64, ImageError> {
    let len = file.metadata()?.len();
    match len {
        0 => Err(ImageError::Length(len)),
        len if len % PAGE as u64 != 0 => Err(ImageError::Length(len)),
        len => Ok(len / PAGE as u64),
    }
}

/// A part of an image's memory: whole pages of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// The file.
    pub(crate) file: &'a File,
    /// Where the part begins in it, in bytes.
    pub(crate) from: u64,
    /// How many pages it has.
    pub(crate) pages: u64,
}

/// What a hole of a file means, over a base.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holes<'a> {
    /// The base's pages.
    OfBase,
    /// The base's pages, but zeros where a guest gave the page up.
    GivenUp(&'a PageSet),
    /// Zeros.
    Zeros,
}

/// Stores the pages of `parts`, one part after another, that differ from the base, or from zeros if
/// there is no base.
pub(super) fn import(
    image: &Image,
    parts: &[Part<'_>],
    holes: Holes<'_>,
) -> Result<Imported, ImageError> {
    let mut imported = Imported::default();
    let mut buffer = vec![0; BUFFER];
    for part in parts {
        let first = imported.pages;
        imported.pages += part.pages;
        import_part(image, part, first, holes, (&mut buffer, &mut imported))?;
    }
    Ok(imported)
}

fn import_part(
    image: &Image,
    part: &Part<'_>,
    number: u64,
    holes: Holes<'_>,
    (buffer, imported): (&mut [u8], &mut Imported),
) -> Result<(), ImageError> {
    let page = |at: u64| number + (at - part.from) / PAGE as u64;
    let mut of_base = vec![0; PAGE];
    let (mut at, end) = (part.from, part.from + part.pages * PAGE as u64);
    let next_data = match holes {
        Holes::Zeros => next_data_of_peer,
        Holes::OfBase | Holes::GivenUp(_) => next_data,
    };
    while let Some(data) = next_data(part.file, at, end)? {
        imported.stored_pages += zero(image, holes, page(at)..page(data.start))?;
        at = data.end;
        let mut rest = data;
        while !rest.is_empty() {
            let len = (rest.end - rest.start).min(BUFFER as u64) as usize;
            let bytes = &mut buffer[..len];
            part.file.read_exact_at(bytes, rest.start).map_err(shrunk)?;
            let _open = image.gate.open();
            for (page, bytes) in (page(rest.start)..).zip(bytes.chunks_exact(PAGE)) {
                imported.read_pages += 1;
                if differs(page, bytes, image.base(), &mut of_base)? {
                    image.store.store(image.first + page, bytes)?;
                    imported.stored_pages += 1;
                }
            }
            rest.start += len as u64;
        }
    }
    imported.stored_pages += zero(image, holes, page(at)..page(end))?;
    // What lies behind the end of a file is shown as a hole.
    match matches!(holes, Holes::Zeros) && part.file.metadata()?.len() < end {
        true => Err(shrunk(io::ErrorKind::UnexpectedEof.into()).into()),
        false => Ok(()),
    }
}

/// Stores zeros in a hole for pages that are zeros and not in the base; returns how many.
fn zero(image: &Image, holes: Holes<'_>, mut hole: Range<u64>) -> Result<u64, ImageError> {
    let Some(base) = image.base() else { return Ok(0) };
    let mut stored = 0;
    loop {
        let _open = image.gate.open();
        let next = match holes {
            Holes::OfBase => None,
            Holes::GivenUp(given_up) => given_up.next_in(hole.clone()),
            Holes::Zeros => next_held(base, hole.clone()),
        };
        let Some(page) = next else { return Ok(stored) };
        if !base.is_zero(page) {
            image.store.store(image.first + page, &[0; PAGE])?;
            stored += 1;
        }
        hole.start = page + 1;
    }
}

/// Returns whether a page differs from what an image without it would have there (I2).
fn differs(
    page: u64,
    bytes: &[u8],
    base: Option<&Arc<Image>>,
    of_base: &mut [u8],
) -> Result<bool, ImageError> {
    let Some(base) = base else { return Ok(!is_zero(bytes)) };
    match (is_zero(bytes), base.is_zero(page)) {
        (zeros, true) => Ok(!zeros),
        (true, false) => Ok(true),
        (false, false) => {
            base.load(page, of_base).map_err(|source| ImageError::Load { page, source })?;
            Ok(bytes != of_base)
        }
    }
}

fn shrunk(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "the file became shorter while it was read: import it when nobody writes to it",
        ),
        _ => error,
    }
}

/// Returns the next range of whole pages between `at` and `end` that holds data.
fn next_data(file: &File, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    let page = PAGE as u64;
    let data = files::next_data(file, at, end)?;
    Ok(data.map(|data| {
        let start = (data.start / page * page).max(at);
        start..data.end.next_multiple_of(page).clamp(start + page, end)
    }))
}

/// The same of a file in memory that is a peer's, too, without its lock, which the peer may hold
/// for ever; what is returned may begin and end with holes.
fn next_data_of_peer(file: &File, mut at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    let mut len = BUFFER as u64;
    while at < end {
        let next = at..end.min(at.saturating_add(len));
        // Where the question is not permitted, all is read.
        match is_any_there(file.as_fd(), &next).unwrap_or(true) {
            // Of many pages, only the first of which may have been looked at.
            true if len > BUFFER as u64 => len = BUFFER as u64,
            true => return Ok(Some(next)),
            false => (at, len) = (next.end, len.saturating_mul(2)),
        }
    }
    Ok(None)
}

impl Image {
    /// Writes all pages that are not zeros to `file`, which is empty, and makes it as long as the
    /// image; returns how many there were.
    pub(super) fn export(&self, file: &File) -> Result<u64, ImageError> {
        file.set_len(self.pages() * PAGE as u64)?;
        let write = |page, bytes: &[u8]| file.write_all_at(bytes, page * PAGE as u64);
        let written = self.runs(0..self.pages(), write)?;
        file.sync_all()?;
        Ok(written)
    }

    /// Hands `write` all pages of a range that are not zeros, some at a time, with the number of
    /// the first; returns how many there were.
    pub(crate) fn runs(
        &self,
        mut pages: Range<u64>,
        write: impl Fn(u64, &[u8]) -> io::Result<()>,
    ) -> Result<u64, ImageError> {
        let mut buffer = Vec::with_capacity(BUFFER);
        let (mut begins, mut written) = (0, 0);
        let write_run = |page, run: &[u8]| if run.is_empty() { Ok(()) } else { write(page, run) };
        while let Some(next) = self.gate.within(|| next_held(self, pages.clone())) {
            let is_behind = next == begins + (buffer.len() / PAGE) as u64;
            if buffer.is_empty() || !is_behind || buffer.len() == BUFFER {
                write_run(begins, &buffer)?;
                buffer.clear();
                begins = next;
            }
            let at = buffer.len();
            buffer.resize(at + PAGE, 0);
            let bytes = &mut buffer[at..];
            let loaded = self.gate.within(|| self.load(next, bytes));
            loaded.map_err(|source| ImageError::Load { page: next, source })?;
            written += 1;
            pages.start = next + 1;
        }
        write_run(begins, &buffer)?;
        Ok(written)
    }
}

/// Returns the first page of a range that an image of the chain holds and that is not zeros.
fn next_held(image: &Image, mut pages: Range<u64>) -> Option<u64> {
    loop {
        let of_one = |one: &Image| {
            let first = one.first;
            let held = image.store.next_present(first + pages.start..first + pages.end);
            held.map(|key| key - first)
        };
        let next = image.chain().filter_map(of_one).min()?;
        if !image.is_zero(next) {
            return Some(next);
        }
        pages.start = next + 1;
    }
}

/// Returns how many pages of its own an image has in the store.
pub(super) fn own_pages(image: &Image) -> u64 {
    let mut keys = image.first..image.first + image.pages();
    let mut own = 0;
    while let Some(key) = image.store.next_present(keys.clone()) {
        own += u64::from(image.store.peek(key) != Content::Absent);
        keys.start = key + 1;
    }
    own
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_a_peer_has_in_its_file_is_found_and_large_holes_are_passed() {
        let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC).expect("a file"));
        let page = |number: u64| number * PAGE as u64;
        // The last page may lie behind the end of what is looked at as a whole.
        for (pages, read_pages) in [(4096, 512), (4090, 506), (100, 100)] {
            file.set_len(0).expect("empty");
            file.set_len(page(pages)).expect("a length");
            let held = [0, pages - 90, pages - 1];
            held.iter().for_each(|&at| file.write_all_at(&[1], page(at)).expect("written"));
            let (mut at, mut found) = (0, Vec::new());
            while let Some(data) = next_data_of_peer(&file, at, page(pages)).expect("found") {
                at = data.end;
                found.push(data);
            }
            assert!(held.iter().all(|&at| found.iter().any(|data| data.contains(&page(at)))));
            let read: u64 = found.iter().map(|data| data.end - data.start).sum();
            assert_eq!(read, page(read_pages));
        }
    }
}
