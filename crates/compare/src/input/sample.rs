//! How large inputs are thinned out.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use zfold_store::files::{next_data, open_to_read};

use crate::rng::SplitMix64;

/// How large inputs are thinned out.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// At most this many bytes are taken, but always one page.
    pub limit_bytes: u64,
    /// Names the random choice.
    pub seed: u64,
}

/// Returns the sampled bytes of a file, and how many pages it has without its holes, which nobody
/// needs to keep and which are not read.
pub(super) fn read_sample(
    path: &Path,
    page_size: usize,
    sampling: Sampling,
) -> io::Result<(Vec<u8>, u64)> {
    let file = open_to_read(path)?;
    let metadata = file.metadata()?;
    let page_bytes = page_size as u64;
    let wanted = (sampling.limit_bytes / page_bytes).max(1);
    let mut bytes = Vec::new();
    if !metadata.is_file() {
        file.take(wanted * page_bytes).read_to_end(&mut bytes)?;
        let read = (bytes.len() as u64).div_ceil(page_bytes);
        return Ok((bytes, read));
    }
    let runs = runs_of_data(&file, metadata.len(), page_bytes)?;
    let population = runs.iter().map(|run| run.end - run.start).sum();
    let mut page = vec![0; page_size];
    let mut read = |number: u64| -> io::Result<()> {
        let offset = number * page_bytes;
        let len = page_bytes.min(metadata.len() - offset) as usize;
        file.read_exact_at(&mut page[..len], offset)?;
        page[len..].fill(0);
        bytes.extend_from_slice(&page);
        Ok(())
    };
    if population <= wanted {
        runs.into_iter().flatten().try_for_each(read)?;
        return Ok((bytes, population));
    }
    // Indices come in order, and so do the runs.
    let (mut runs, mut before) = (runs.iter(), 0);
    let mut run = runs.next();
    for index in SplitMix64::new(sampling.seed).sample(population, wanted) {
        while let Some(passed) = run.filter(|run| index - before >= run.end - run.start) {
            before += passed.end - passed.start;
            run = runs.next();
        }
        let run = run.expect("an index below the population is in a run");
        read(run.start + index - before)?;
    }
    Ok((bytes, population))
}

/// Returns the runs of pages that hold data, in order and apart from each other.
fn runs_of_data(file: &File, len: u64, page_bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while let Some(data) = next_data(file, at, len)? {
        let run = data.start / page_bytes..data.end.div_ceil(page_bytes);
        match runs.last_mut() {
            Some(last) if run.start <= last.end => last.end = run.end,
            _ => runs.push(run),
        }
        at = data.end.max(at + 1);
    }
    Ok(runs)
}
