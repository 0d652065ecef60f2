//! The program that the demo measures: it fills memory, reads and updates parts of it, reads all of
//! it again, and says on stdout what it does. At the end it waits until it has been looked at.

use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use zfold_compare::rng::SplitMix64;
use zfold_region::{MemoryOptions, Region};
use zfold_store::CodecKind;

use super::page::{PAGE, Samples, update, verified};
use crate::shared::exit::{self, Failure, Form};
use crate::shared::size::parse_size;

/// The first argument of this program.
pub(crate) const NAME: &str = "demo-work";

/// Least time between two lines about progress.
const INTERVAL: Duration = Duration::from_millis(50);

/// One in this many uses is of any page; the others are of the tenth that is in use.
const ANYWHERE: u64 = 8;

/// The program's messages, one line each.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// It is this process.
    Process(u32),
    /// The share of the work that is done, and the contents of a region.
    Progress(f64, Option<Held>),
    /// All of it is done.
    Done { checksum: u64, held: Option<Held> },
}

/// The contents of a region.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Held {
    pub(super) resident_bytes: u64,
    pub(super) stored_pages_bytes: u64,
    pub(super) stored_bytes: u64,
}

impl Held {
    fn of(region: &Region) -> Self {
        let stats = region.stats();
        Self {
            resident_bytes: stats.resident_pages * stats.page_bytes,
            stored_pages_bytes: (stats.stored_pages + stats.copied_pages) * stats.page_bytes,
            stored_bytes: stats.store_bytes,
        }
    }
}

/// Does the work; `arguments` are the size, and the limit of a region if there is to be one.
pub(crate) fn work(arguments: &[String]) -> Result<(), Failure> {
    let number = |at: usize| arguments.get(at).map(|text| parse_size(text)).transpose();
    let refused = |_| Failure::usage("this command belongs to zfold demo: use that");
    let (size, limit) = (number(0).map_err(refused)?, number(1).map_err(refused)?);
    let len = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let size = len(size.unwrap_or_default());
    say(&Message::Process(std::process::id()))?;
    let done = match limit {
        None => work_on(Memory::Plain(zeros(size)?))?,
        Some(limit) => {
            let options = MemoryOptions::new(len(limit)).with_codec(CodecKind::Page);
            let region = Region::new(size, &options).map_err(|error| {
                Failure::new(format!("cannot make a region: {error}; see zfold check"))
            })?;
            work_on(Memory::Region(region))?
        }
    };
    say(&done)?;
    // Nothing is written: this returns at the end of the pipe, when the other side has looked.
    let _ = io::stdin().read(&mut [0]);
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
        match self {
            Self::Plain(_) => None,
            Self::Region(region) => Some(Held::of(region)),
        }
    }
}

fn work_on(mut memory: Memory) -> Result<Message, Failure> {
    let (samples, pages) = (Samples::new(), (memory.bytes().len() / PAGE) as u64);
    let mut peak = Held::default();
    let mut last = Instant::now();
    let mut chance = SplitMix64::new(pages);
    let mut checksum = 0_u64;
    for step in 0..3 * pages {
        let at = step % pages;
        let number = match step / pages {
            0 | 2 => at,
            _ if chance.below(ANYWHERE) == 0 => chance.below(pages),
            _ => chance.below(pages.div_ceil(10)),
        };
        let page = &mut memory.bytes()[number as usize * PAGE..][..PAGE];
        if step < pages {
            samples.fill(page, number);
        } else {
            let sum = verified(page);
            let sum = sum.ok_or_else(|| Failure::new(format!("page {number} has changed")))?;
            match step / pages {
                1 if at.is_multiple_of(2) => update(page, &mut chance),
                1 => {}
                _ => checksum = checksum.rotate_left(1) ^ sum,
            }
        }
        // The time is asked for now and then: it costs as much as a small page.
        if step.is_multiple_of(64) && last.elapsed() >= INTERVAL {
            last = Instant::now();
            let held = memory.held();
            peak = held.map_or(peak, |held| peak.most(held));
            say(&Message::Progress(step as f64 / (3 * pages) as f64, held))?;
        }
    }
    let held = memory.held().map(|held| peak.most(held));
    Ok(Message::Done { checksum, held })
}

impl Held {
    /// Returns the one with more stored, with the most resident of both.
    fn most(self, other: Self) -> Self {
        let resident_bytes = self.resident_bytes.max(other.resident_bytes);
        let more = if other.stored_bytes > self.stored_bytes { other } else { self };
        Self { resident_bytes, ..more }
    }
}

fn say(said: &Message) -> Result<(), Failure> {
    let line = serde_json::to_string(said).expect("numbers are JSON") + "\n";
    match exit::write_part(Form::Data, &line)? {
        true => Ok(()),
        false => Err(Failure::new("the demo has ended, and with it this program")),
    }
}
