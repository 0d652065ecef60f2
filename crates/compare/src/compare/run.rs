//! All combinations of a comparison, one after the other.
//!
//! Nothing of one combination is left when the next begins, so none has the memory of another in
//! its figures.

use std::cell::Cell;

use zfold_pool::Allocator;
use zfold_store::CodecSpec;

use super::churn;
use super::error::RunError;
use super::meter::{Lap, Meter, Progress};
use super::plan::Plan;
use super::record::{ALL_INPUTS, Measured, Record};
use crate::input::PageSet;

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
    let total = operations.sum::<u64>() * combinations;
    let meter = Meter { progress, total, done: Cell::new(0) };
    let mut records = Vec::new();
    for (place, workload) in workloads.iter().enumerate() {
        for &codec in &plan.codecs {
            for &allocator in &plan.allocators {
                let choice = Choice { workload, place, allocator, codec };
                records.push(choice.measure(plan, &meter)?);
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

/// One cell of the comparison.
#[derive(Clone, Copy)]
struct Choice<'a> {
    workload: &'a Workload<'a>,
    /// Which workload.
    place: usize,
    allocator: Allocator,
    codec: CodecSpec,
}

impl Choice<'_> {
    /// Stores and loads the pages, and sums up.
    fn measure(self, plan: &Plan, meter: &Meter<'_>) -> Result<Record, RunError> {
        let Self { workload: Workload { input, pages }, allocator, codec, .. } = self;
        let lap = Lap { meter, what: &format!("{input}, {allocator}, {codec}") };
        let outcome = churn::churn(plan, pages, allocator, codec, &lap);
        let outcome = outcome.map_err(|fault| RunError {
            input: (*input).to_owned(),
            allocator: allocator.to_string(),
            codec: codec.to_string(),
            fault,
        })?;
        Ok(self.record(plan, outcome))
    }

    fn record(self, plan: &Plan, outcome: Measured) -> Record {
        let has_zspages = self.allocator == Allocator::Zsmalloc;
        Record {
            input: self.workload.input.to_owned(),
            allocator: self.allocator.to_string(),
            chain: has_zspages.then_some(plan.chain),
            chooser: has_zspages.then(|| plan.chooser.name().to_owned()),
            codec: self.codec.to_string(),
            preset: plan.preset.map(|preset| preset.name().to_owned()),
            page_size: plan.page_size.bytes() as u64,
            limit_bytes: plan.limit_bytes,
            seed: plan.seed,
            pages: self.workload.pages.len() as u64,
            sizes: outcome.sizes,
            store_ns: outcome.store_ns,
            load_ns: outcome.load_ns,
            // A wrong byte ends the comparison before a record is made.
            verified: true,
            place: self.place,
        }
    }
}
