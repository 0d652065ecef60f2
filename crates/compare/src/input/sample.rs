//! How large inputs are thinned out.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::rng::SplitMix64;

/// How large inputs are thinned out.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// At most this many bytes are taken, but always one page.
    pub limit_bytes: u64,
    /// Names the random choice.
    pub seed: u64,
}

/// Returns the sampled bytes of a file, and how many pages it has.
pub(super) fn read_sample(
    path: &Path,
    page_size: usize,
    sampling: Sampling,
) -> io::Result<(Vec<u8>, u64)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let page_bytes = page_size as u64;
    let wanted = (sampling.limit_bytes / page_bytes).max(1);
    let population = metadata.len().div_ceil(page_bytes);
    let mut bytes = Vec::new();
    if !metadata.is_file() || population <= wanted {
        file.take(wanted * page_bytes).read_to_end(&mut bytes)?;
        return Ok((bytes, population));
    }
    let mut page = vec![0; page_size];
    for index in SplitMix64::new(sampling.seed).sample(population, wanted) {
        let offset = index * page_bytes;
        let len = page_bytes.min(metadata.len() - offset) as usize;
        file.read_exact_at(&mut page[..len], offset)?;
        page[len..].fill(0);
        bytes.extend_from_slice(&page);
    }
    Ok((bytes, population))
}
