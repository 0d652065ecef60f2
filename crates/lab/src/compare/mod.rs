//! zbud, z3fold and zsmalloc side by side on the same pages.
//!
//! After the comparison of the three in zswap on the linux-mm list (February 2024): the pool's
//! largest size and the times of stores and loads, here without a machine to boot and with the
//! contents verified. For each input, codec and allocator:
//!
//! ```text
//! store all -> filled point: sizes, resident memory
//! load all and compare -> free a random half -> compact -> store that half again
//! load all and compare -> free all -> the pool holds no page; resident memory
//! ```
//!
//! Several inputs also run together in one pool, as an input of its own named `all`: in a pool of
//! its own, a small input leaves a larger share of its pages partly empty.
//!
//! The random order of events is the same for every allocator and codec; a seed names it. It is
//! that of the runs in a real kernel that the pool sizes were checked against, and described in
//! `docs/fidelity.md`. Times are of single calls and leave out the comparison of bytes. Everything
//! the measurement itself needs is allocated and touched before the resident memory is first read,
//! and a few pages go ahead of the fill and out again, so that code, thread stacks and codec
//! contexts count for no pool.

mod churn;
mod error;
mod order;
mod plan;
mod record;
mod replay;
pub mod report;

use std::sync::atomic::{AtomicU64, Ordering};

pub use error::{Fault, RunError};
pub use plan::{Plan, Preset, UnknownPreset};
pub use record::{Record, Sizes};
pub use zfold_pool::{Allocator, Chooser, ConfigError, Locking, PageSize};
pub use zfold_store::CodecSpec;

use crate::input::PageSet;
use crate::latency::Latency;
use crate::trace::Trace;
use record::{ALL_INPUTS, TRACE_CODEC};

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

/// Compares on pages: every input with every codec in every allocator. Several inputs come first
/// together, in one pool, under the name `all`.
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
    let fits = |input: &PageSet| input.page_size() == plan.page_size.bytes();
    assert!(inputs.iter().all(fits), "the inputs fit the plan");
    let workloads = workloads(inputs);
    let operations = workloads.iter().map(|workload| churn::operations(workload.pages.len()));
    let combinations = (plan.codecs.len() * plan.allocators.len()) as u64;
    let total = operations.sum::<u64>() * combinations * u64::from(plan.repeat);
    let meter = Meter { progress, total, done: AtomicU64::new(0) };
    let mut records = Vec::new();
    for (place, Workload { input, pages }) in workloads.iter().enumerate() {
        for codec in &plan.codecs {
            for &allocator in &plan.allocators {
                let codec_name = &codec.to_string();
                let choice = Choice { input, place, allocator, codec: codec_name };
                records.push(choice.measure(plan, pages.len() as u64, &meter, |seed, lap| {
                    churn::churn(plan, pages, allocator, *codec, seed, lap)
                })?);
            }
        }
    }
    Ok(records)
}

/// The pages that go through one pool.
struct Workload<'a> {
    input: &'a str,
    pages: Vec<&'a [u8]>,
}

/// Returns several inputs together, if there are, then each input.
fn workloads<'a>(inputs: &'a [PageSet]) -> Vec<Workload<'a>> {
    let joint = (inputs.len() > 1).then(|| Workload {
        input: ALL_INPUTS,
        pages: inputs.iter().flat_map(PageSet::pages).collect(),
    });
    let single =
        |input: &'a PageSet| Workload { input: input.name(), pages: input.pages().collect() };
    joint.into_iter().chain(inputs.iter().map(single)).collect()
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
        let (input, codec) = (trace.name(), TRACE_CODEC);
        let choice = Choice { input, place: 0, allocator, codec };
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
    /// Which workload.
    place: usize,
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
        let Self { input, allocator, codec, .. } = self;
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
            locking: plan.pool_options(self.allocator).locking().to_string(),
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
            place: self.place,
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
