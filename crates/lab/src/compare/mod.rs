//! zbud, z3fold and zsmalloc side by side on the same pages.
//!
//! After Yosry Ahmed's comparison of the three in zswap (2024): the pool's largest size and the
//! times of stores and loads, here without a machine to boot and with the contents verified. For
//! each input, codec and allocator:
//!
//! ```text
//! store all, in a seeded random order -> filled point: sizes, resident memory
//! load all and compare -> free a random half -> compact -> store that half again
//! load all and compare -> free all -> the pool holds no page
//! ```
//!
//! Pages are stored in the same order for every allocator and codec. Times are of single calls
//! and leave out the comparison of bytes. Everything the measurement itself needs is allocated
//! and touched before the resident memory is first read, and a few pages go ahead of the fill and
//! out again, so that code, thread stacks and codec contexts count for no pool.

mod churn;
mod error;
mod plan;
mod record;
mod replay;
pub mod report;

use std::sync::atomic::{AtomicU64, Ordering};

pub use error::{Fault, RunError};
pub use plan::{Plan, Preset, UnknownPreset};
pub use record::{Record, Sizes};
pub use zfold_pool::{Allocator, Chooser, PageSize};
pub use zfold_store::CodecSpec;

use crate::input::PageSet;
use crate::latency::Latency;
use crate::trace::Trace;
use record::TRACE_CODEC;

/// How far a comparison has come.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The input, allocator and codec at work.
    pub what: &'a str,
    /// Operations done, of all combinations.
    pub done: u64,
    /// Operations to do in all.
    pub total: u64,
}

/// Told now and then how far a comparison has come, from any of its threads.
pub type Progress<'a> = &'a (dyn Fn(Step<'_>) + Sync);

/// Compares on pages: every input with every codec in every allocator.
///
/// # Errors
///
/// When a combination cannot be run, a byte comes back wrong, memory is not given back, or the
/// limit keeps every page out.
///
/// # Panics
///
/// When an input is cut in pages of another size than planned.
pub fn run(
    plan: &Plan,
    inputs: &[PageSet],
    progress: Progress<'_>,
) -> Result<Vec<Record>, RunError> {
    let operations: u64 = inputs.iter().map(churn::operations).sum();
    let combinations = (plan.codecs.len() * plan.allocators.len()) as u64;
    let total = operations * combinations * u64::from(plan.repeat);
    let meter = Meter { progress, total, done: AtomicU64::new(0) };
    let mut records = Vec::new();
    for input in inputs {
        assert_eq!(input.page_size(), plan.page_size.bytes(), "the input fits the plan");
        for codec in &plan.codecs {
            for &allocator in &plan.allocators {
                let codec_name = codec.to_string();
                let choice = Choice { input: input.name(), allocator, codec: &codec_name };
                let pages = input.len() as u64;
                records.push(choice.measure(plan, pages, &meter, |seed, lap| {
                    churn::churn(plan, input, allocator, *codec, seed, lap)
                })?);
            }
        }
    }
    Ok(records)
}

/// Compares on a recorded run: its order and sizes in every allocator, without codec.
///
/// # Errors
///
/// As [`run`].
pub fn replay(plan: &Plan, trace: &Trace, progress: Progress<'_>) -> Result<Vec<Record>, RunError> {
    let runs = plan.allocators.len() as u64 * u64::from(plan.repeat);
    let total = runs * trace.events().len() as u64;
    let meter = Meter { progress, total, done: AtomicU64::new(0) };
    let measure = |&allocator: &Allocator| {
        let choice = Choice { input: trace.name(), allocator, codec: TRACE_CODEC };
        choice.measure(plan, trace.stores(), &meter, |_, lap| {
            replay::replay(plan, trace, allocator, lap)
        })
    };
    plan.allocators.iter().map(measure).collect()
}

/// What one run over an input found.
#[derive(Debug)]
struct Outcome {
    sizes: Sizes,
    stores: Latency,
    loads: Latency,
}

/// One cell of the comparison.
#[derive(Clone, Copy)]
struct Choice<'a> {
    input: &'a str,
    allocator: Allocator,
    codec: &'a str,
}

impl Choice<'_> {
    /// Runs `once` as often as planned, each time with another seed, and sums up.
    fn measure(
        self,
        plan: &Plan,
        pages: u64,
        meter: &Meter<'_>,
        once: impl Fn(u64, &Lap<'_>) -> Result<Outcome, Fault>,
    ) -> Result<Record, RunError> {
        let Self { input, allocator, codec } = self;
        let lap = Lap { meter, what: &format!("{input}, {allocator}, {codec}") };
        let (mut sizes, mut stores, mut loads) = (Vec::new(), Latency::new(), Latency::new());
        for repeat in 0..u64::from(plan.repeat) {
            let outcome = once(plan.seed.wrapping_add(repeat), &lap).map_err(|fault| RunError {
                input: input.to_owned(),
                allocator: allocator.to_string(),
                codec: codec.to_owned(),
                fault,
            })?;
            sizes.push(outcome.sizes);
            stores.merge(&outcome.stores);
            loads.merge(&outcome.loads);
        }
        Ok(self.record(plan, pages, Outcome { sizes: Sizes::median(&sizes), stores, loads }))
    }

    fn record(self, plan: &Plan, pages: u64, outcome: Outcome) -> Record {
        let has_zspages = self.allocator == Allocator::Zsmalloc;
        Record {
            input: self.input.to_owned(),
            allocator: self.allocator.to_string(),
            chain: has_zspages.then_some(plan.chain),
            chooser: has_zspages.then(|| plan.chooser.to_string()),
            codec: self.codec.to_owned(),
            preset: plan.preset.map(|preset| preset.to_string()),
            page_size: plan.page_size.bytes() as u64,
            limit_bytes: plan.limit_bytes,
            threads: plan.threads,
            repeat: plan.repeat,
            seed: plan.seed,
            pages,
            sizes: outcome.sizes,
            store_ns: outcome.stores.summary(),
            load_ns: outcome.loads.summary(),
            // A wrong byte ends the comparison before a record is made.
            verified: true,
            stores: outcome.stores,
            loads: outcome.loads,
        }
    }
}

/// Counts operations over all combinations.
struct Meter<'a> {
    progress: Progress<'a>,
    total: u64,
    done: AtomicU64,
}

/// The part of a [`Meter`] that counts for one combination.
struct Lap<'a> {
    meter: &'a Meter<'a>,
    what: &'a str,
}

impl Lap<'_> {
    /// Counts one operation, the `index`th of a row; tells of it once in a while.
    fn tick(&self, index: usize) {
        const ONCE_IN: usize = 256;
        if index % ONCE_IN == ONCE_IN - 1 {
            self.advance(ONCE_IN as u64);
        }
    }

    /// Counts `operations`.
    fn advance(&self, operations: u64) {
        let Meter { progress, total, done } = self.meter;
        // Relaxed: a count for people, which orders nothing.
        let done = done.fetch_add(operations, Ordering::Relaxed) + operations;
        progress(Step { what: self.what, done: done.min(*total), total: *total });
    }
}

#[cfg(test)]
mod tests;
