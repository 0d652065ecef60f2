//! A set of pages, and where it can be had from.

use std::path::Path;

use crate::input::error::InputError;
use crate::input::process;
use crate::input::sample::{Sampling, read_sample};

/// Captures of real anonymous memory: name, and 1024 pages of 4096 bytes packed by zstd.
const BUILTIN: [(&str, &[u8]); 5] = [
    ("cc1", include_bytes!("../../corpus/cc1.pages.zst")),
    ("node", include_bytes!("../../corpus/node.pages.zst")),
    ("numpy", include_bytes!("../../corpus/numpy.pages.zst")),
    ("postgres", include_bytes!("../../corpus/postgres.pages.zst")),
    ("rustc", include_bytes!("../../corpus/rustc.pages.zst")),
];

/// A named run of whole pages; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet {
    name: String,
    page_size: usize,
    pub(super) bytes: Vec<u8>,
    population: u64,
}

impl PageSet {
    /// Returns `bytes` as pages of `page_size` bytes.
    ///
    /// # Errors
    ///
    /// [`InputError::Empty`] without bytes.
    ///
    /// # Panics
    ///
    /// When the last page is not whole.
    pub fn new(name: &str, page_size: usize, bytes: Vec<u8>) -> Result<Self, InputError> {
        assert!(bytes.len().is_multiple_of(page_size), "pages are whole");
        let name = name.to_owned();
        if bytes.is_empty() {
            return Err(InputError::Empty { name });
        }
        let population = (bytes.len() / page_size) as u64;
        Ok(Self { name, page_size, bytes, population })
    }

    /// Returns the captures that are part of this crate, cut in pages of `page_size` bytes; each is
    /// unpacked when its turn comes.
    ///
    /// # Panics
    ///
    /// When `page_size` does not divide 4 MiB, the size of each capture.
    pub fn builtin(page_size: usize) -> impl Iterator<Item = Self> {
        BUILTIN.iter().map(move |&(name, packed)| {
            let bytes = zstd::decode_all(packed).expect("the capture was packed with this crate");
            Self::new(name, page_size, bytes).expect("captures hold 4 MiB")
        })
    }

    /// Returns the pages of any file; the last one is filled up with zeros.
    ///
    /// A file larger than the sampling limit is sampled: uniformly and in the order of the file.
    /// Its holes are left out and not read. Of a pipe or device, whose size is not known, the bytes
    /// up to the limit are taken.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is empty.
    pub fn from_file(
        path: &Path,
        page_size: usize,
        sampling: Sampling,
    ) -> Result<Self, InputError> {
        let (mut bytes, population) = read_sample(path, page_size, sampling)
            .map_err(|source| InputError::unreadable(path, source))?;
        bytes.resize(bytes.len().next_multiple_of(page_size), 0);
        let mut pages = Self::new(&path.display().to_string(), page_size, bytes)?;
        pages.name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        pages.population = population.max(pages.population);
        Ok(pages)
    }

    /// Returns the anonymous memory of the process `pid`, named `pid-123`.
    ///
    /// Taken are the pages of private writable mappings, except stacks, that are present or
    /// swapped out and not backed by a file; more than the sampling limit is sampled uniformly.
    /// The process runs on meanwhile: pages that it gives back while it is read are left out.
    ///
    /// # Errors
    ///
    /// When there is no such process, it may not be read, or it has no such memory.
    pub fn from_process(
        pid: u32,
        page_size: usize,
        sampling: Sampling,
    ) -> Result<Self, InputError> {
        let (bytes, population) = process::read_anonymous(pid, page_size, sampling)?;
        if bytes.is_empty() {
            return Err(InputError::NoAnonymousMemory { pid });
        }
        let mut pages = Self::new(&format!("pid-{pid}"), page_size, bytes)?;
        pages.population = population.max(pages.population);
        Ok(pages)
    }

    /// Returns the name under which results are reported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of one page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Returns the number of pages, at least one.
    #[allow(clippy::len_without_is_empty, reason = "a page set is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.page_size
    }

    /// Returns how many pages there were to choose from; larger than [`len`](Self::len) when
    /// these are a sample.
    pub fn population(&self) -> u64 {
        self.population
    }

    /// Returns the page at `index`.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`len`](Self::len).
    pub fn page(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.page_size..][..self.page_size]
    }

    /// Returns all pages in order.
    pub fn pages(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.page_size)
    }
}
