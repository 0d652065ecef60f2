//! All combinations of a comparison, one after the other.
//!
//! Nothing of one combination is left when the next begins, so none has the memory of another in
//! its figures. Threads share only the count of operations done, for the progress bar.

use std::sync::atomic::AtomicU64;

use zfold_pool::Allocator;

use super::churn;
use super::error::{Fault, RunError};
use super::meter::{Lap, Meter, Progress};
use super::plan::Plan;
use super::record::{ALL_INPUTS, Measured, Record, Sizes, TRACE_CODEC};
use crate::input::PageSet;
use crate::latency::Latency;
use crate::trace::Trace;

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

/// Compares on a recorded run: its order and sizes in every allocator, without codec. A store that
/// would bring a pool above the plan's limit is refused and counted.
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
            super::replay::replay(plan, trace, allocator, lap)
        })
    };
    plan.allocators.iter().map(measure).collect()
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
        once: impl Fn(u64, &Lap<'_>) -> Result<Measured, Fault>,
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
        Ok(self.record(plan, pages, Measured { sizes: Sizes::median(&sizes), stores, loads }))
    }

    fn record(self, plan: &Plan, pages: u64, outcome: Measured) -> Record {
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
