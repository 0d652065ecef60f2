//! The program that the demo measures: it fills memory with pages of real programs, reads and
//! updates parts of it, reads all of it again, and says on stdout how far it is. At the end it
//! waits until it has been looked at.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use zfold_compare::input::PageSet;
use zfold_compare::rng::SplitMix64;
use zfold_region::{MemoryOptions, Region};
use zfold_store::CodecKind;

use crate::shared::exit::{self, Failure, Form};
use crate::shared::size::parse_size;

/// The first argument of this program.
pub(crate) const NAME: &str = "demo-work";

/// Length of a page.
const PAGE: usize = 4096;

/// Pages of each captured program: few, as they take memory besides the data.
const OF_EACH: usize = 128;

/// Least time between two lines about progress.
const INTERVAL: Duration = Duration::from_millis(50);

/// One in this many uses is of any page; the others are of the tenth that is in use.
const ANYWHERE: u64 = 8;

/// A line of this program.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Said {
    /// It is this process.
    pub(super) process: u32,
    /// The share of the work that is done.
    pub(super) share: f64,
    /// The contents of a region.
    pub(super) held: Option<Held>,
    /// That of all that was written and read, at the end.
    pub(super) checksum: Option<String>,
}

/// The contents of a region.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Held {
    pub(super) resident_bytes: u64,
    pub(super) stored_pages_bytes: u64,
    pub(super) stored_bytes: u64,
}

/// Does the work; `arguments` are the size, and the limit of a region if there is to be one.
pub(crate) fn work(arguments: &[String]) -> Result<(), Failure> {
    let number = |at: usize| arguments.get(at).map(|text| parse_size(text)).transpose();
    let refused = |_| Failure::usage("this command belongs to zfold demo: use that");
    let (size, limit) = (number(0).map_err(refused)?, number(1).map_err(refused)?);
    let len = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let size = len(size.unwrap_or_default());
    match limit {
        None => work_on(Memory::Plain(zeros(size)?))?,
        Some(limit) => {
            let options = MemoryOptions::new(len(limit)).with_codec(CodecKind::Page);
            let region = Region::new(size, &options).map_err(|error| {
                Failure::new(format!("cannot make a region: {error}; see zfold check"))
            })?;
            work_on(Memory::Region(region))?;
        }
    }
    Ok(())
}

/// Returns memory that the kernel has yet to fill.
fn zeros(size: usize) -> Result<Vec<u8>, Failure> {
    // A vector of zeros is not touched, but allocates its memory in a way that cannot fail.
    let asked = Vec::<u8>::new().try_reserve_exact(size);
    asked.map_err(|error| Failure::new(format!("{error}; give a smaller --size")))?;
    Ok(vec![0; size])
}

/// Where the data is.
enum Memory {
    Plain(Vec<u8>),
    Region(Region),
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Region(region) => region.as_mut_slice(),
        }
    }

    fn held(&self) -> Option<Held> {
        let Self::Region(region) = self else { return None };
        let stats = region.stats();
        Some(Held {
            resident_bytes: stats.resident_pages * stats.page_bytes,
            stored_pages_bytes: (stats.stored_pages + stats.copied_pages) * stats.page_bytes,
            stored_bytes: stats.store_bytes,
        })
    }
}

fn work_on(mut memory: Memory) -> Result<(), Failure> {
    let samples: Vec<Vec<u8>> = PageSet::builtin(PAGE)
        .flat_map(|program| program.pages().take(OF_EACH).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let pages = (memory.bytes().len() / PAGE) as u64;
    let mut chance = SplitMix64::new(pages);
    let mut sum = DefaultHasher::new();
    let mut last = Instant::now();
    say(0.0, &memory, None)?;
    for step in 0..3 * pages {
        let (part, at) = (step / pages, step % pages);
        let number = match part {
            1 if chance.below(ANYWHERE) == 0 => chance.below(pages),
            1 => chance.below(pages.div_ceil(10)),
            _ => at,
        };
        let page = &mut memory.bytes()[number as usize * PAGE..][..PAGE];
        match part {
            0 => {
                page.copy_from_slice(&samples[at as usize % samples.len()]);
                // So that no two are the same.
                page[..8].copy_from_slice(&at.to_le_bytes());
            }
            1 if at.is_multiple_of(2) => {
                let byte = &mut page[chance.below(PAGE as u64) as usize];
                *byte = byte.wrapping_add(1);
            }
            _ => {}
        }
        sum.write(page);
        // The time is asked for now and then: it costs as much as a small page.
        if step.is_multiple_of(64) && last.elapsed() >= INTERVAL {
            last = Instant::now();
            say(step as f64 / (3 * pages) as f64, &memory, None)?;
        }
    }
    say(1.0, &memory, Some(format!("{:016x}", sum.finish())))?;
    // Nothing is written: this returns at the end of the pipe, when the other side has looked.
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}

fn say(share: f64, memory: &Memory, checksum: Option<String>) -> Result<(), Failure> {
    let said = Said { process: std::process::id(), share, held: memory.held(), checksum };
    let line = serde_json::to_string(&said).expect("numbers are JSON") + "\n";
    match exit::write_part(Form::Data, &line)? {
        true => Ok(()),
        false => Err(Failure::new("the demo has ended, and with it this program")),
    }
}
