//! Imports a memory file into pages of the store, and exports pages to a memory file.
//!
//! Both are sparse: holes of a file are not read, and zeros are not written. Both use one buffer of
//! memory, however long the file is.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use zfold_store::{Content, Store};
use zfold_uffd::page::{PAGE, is_zero};

use super::error::ImageError;
use super::gate::Gate;
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

/// Stores the pages of `file` from the key `first` on that differ from the base, or from zeros if
/// there is no base. A hole at a page that a guest gave up is zeros.
pub(super) fn import(
    (store, gate): (&Store, &Gate),
    file: &File,
    pages: u64,
    first: u64,
    base: Option<&Image>,
    given_up: Option<&PageSet>,
) -> Result<Imported, ImageError> {
    let mut imported = Imported { pages, ..Imported::default() };
    let mut buffer = vec![0; BUFFER];
    let mut of_base = vec![0; PAGE];
    let mut at = 0;
    let zeros = |hole: Range<u64>| match base.zip(given_up) {
        Some((base, given_up)) => zero(base, given_up, (store, gate), first, hole),
        None => Ok(0),
    };
    while let Some(data) = next_data(file, at, pages * PAGE as u64)? {
        imported.stored_pages += zeros(at / PAGE as u64..data.start / PAGE as u64)?;
        at = data.end;
        let mut rest = data;
        while !rest.is_empty() {
            let len = (rest.end - rest.start).min(BUFFER as u64) as usize;
            let bytes = &mut buffer[..len];
            file.read_exact_at(bytes, rest.start).map_err(shrunk)?;
            let numbers = rest.start / PAGE as u64..;
            let _open = gate.open();
            for (page, bytes) in numbers.zip(bytes.chunks_exact(PAGE)) {
                imported.read_pages += 1;
                if differs(page, bytes, base, &mut of_base)? {
                    store.store(first + page, bytes)?;
                    imported.stored_pages += 1;
                }
            }
            rest.start += len as u64;
        }
    }
    imported.stored_pages += zeros(at / PAGE as u64..pages)?;
    Ok(imported)
}

/// Stores zeros in a hole for pages that the guest gave up and that are not zeros in the base;
/// returns how many.
fn zero(
    base: &Image,
    given_up: &PageSet,
    (store, gate): (&Store, &Gate),
    first: u64,
    mut hole: Range<u64>,
) -> Result<u64, ImageError> {
    let mut stored = 0;
    while let Some(page) = given_up.next_in(hole.clone()) {
        let _open = gate.open();
        if !base.is_zero(page) {
            store.store(first + page, &[0; PAGE])?;
            stored += 1;
        }
        hole.start = page + 1;
    }
    Ok(stored)
}

/// Returns whether a page differs from what an image without it would have there (I2).
fn differs(
    page: u64,
    bytes: &[u8],
    base: Option<&Image>,
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
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not support holes.
        Err(Errno::INVAL | Errno::NOTSUP) => at,
        Err(error) => return Err(error.into()),
    };
    if at >= end || start >= end {
        return Ok(None);
    }
    let stop = match seek(file, SeekFrom::Hole(start)) {
        Ok(stop) => stop,
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NXIO) => end,
        Err(error) => return Err(error.into()),
    };
    let start = (start / page * page).max(at);
    Ok(Some(start..stop.next_multiple_of(page).clamp(start + page, end)))
}

/// Writes all pages of an image that are not zeros to `file`, which is empty, and makes it as long
/// as the image; returns how many there were.
pub(super) fn export(
    image: &Image,
    (store, gate): (&Store, &Gate),
    file: &File,
) -> Result<u64, ImageError> {
    file.set_len(image.pages() * PAGE as u64)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let (mut begins, mut written) = (0, 0);
    let mut page = 0;
    while let Some(next) = gate.within(|| next_held(image, store, page)) {
        if next != begins + (buffer.len() / PAGE) as u64 || buffer.len() == BUFFER {
            file.write_all_at(&buffer, begins * PAGE as u64)?;
            buffer.clear();
            begins = next;
        }
        let at = buffer.len();
        buffer.resize(at + PAGE, 0);
        let bytes = &mut buffer[at..];
        let loaded = gate.within(|| image.load(next, bytes));
        loaded.map_err(|source| ImageError::Load { page: next, source })?;
        written += 1;
        page = next + 1;
    }
    file.write_all_at(&buffer, begins * PAGE as u64)?;
    file.sync_all()?;
    Ok(written)
}

/// Returns the first page from `page` on that an image of the chain holds and that is not zeros.
fn next_held(image: &Image, store: &Store, mut page: u64) -> Option<u64> {
    loop {
        let of_one = |one: &Image| {
            let first = one.keys().start;
            let held = store.next_present(first + page..first + image.pages());
            held.map(|key| key - first)
        };
        let next = image.chain().filter_map(of_one).min()?;
        if !image.is_zero(next) {
            return Some(next);
        }
        page = next + 1;
    }
}

/// Returns how many pages of its own an image has in the store.
pub(super) fn own_pages(image: &Image, store: &Store) -> u64 {
    let first = image.keys().start;
    let mut keys = first..first + image.pages();
    let mut own = 0;
    while let Some(key) = store.next_present(keys.clone()) {
        own += u64::from(store.peek(key) != Content::Absent);
        keys.start = key + 1;
    }
    own
}
