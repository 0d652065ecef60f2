//! The measured, the assumed and the omitted parts.

use super::given::{CLUSTER, CONTEXTS, FAR_FACTOR, KERNEL_HOLD_NS, REMOTE_FREES, WAITER_TRANSFERS};
use super::measured::Measured;
use super::sample::disturbed;

/// Returns the measured, the assumed and the omitted parts.
#[expect(clippy::too_many_lines, reason = "sentences, one after the other")]
pub(super) fn remarks(
    measured: &Measured,
    randrw: (f64, f64),
    build_ns: f64,
    compaction_ns: f64,
) -> Vec<String> {
    let Measured { host, slowdown, transfer_ns, compaction_hold_ns, .. } = measured;
    let samples = measured.contestants.iter().flat_map(|(_, samples, _)| samples);
    let (disturbed, runs) = disturbed(samples);
    let mut remarks = vec![
        "Simulated are all figures for 4 cores and more, the errors, and those beside \
         published ones; the throughput of 1 and 2 workers is measured and simulated. An \
         operation is an insert, a free or a read that compares the bytes; every worker has \
         objects of its own, built-in pages compressed by LZ4."
            .to_owned(),
        format!(
            "Measured here: a line from the other core {transfer_ns:.0} ns, an atomic \
             operation on an own line {:.1} ns, a look of a waiting thread {:.0} ns and {:.0} \
             ns once it yields, an empty hold under watch {:.0} ns (subtracted from all \
             holds), LZ4 {:.0} ns to compress a page and {:.0} ns to decompress it, a step of \
             compaction {compaction_hold_ns:.0} ns; two threads with a pool of each one's own \
             are slower than one by a factor of {slowdown:.2}, which is assumed for more \
             cores, too.",
            host.atomic_ns,
            host.look_ns,
            host.yield_ns,
            host.empty_hold_ns,
            host.compress_ns,
            host.decompress_ns,
        ),
    ];
    remarks.extend(measured.contestants.iter().map(|(contestant, _, profile)| {
        let (locks, held_ns) = profile.locked();
        format!(
            "{}: a round of three operations takes {:.0} ns, {held_ns:.0} ns of it under \
             {locks:.2} locks, and takes the migrate lock {:.1} times for reading; a lock \
             that another core held is held {:.0} ns longer, and lines outside of locks that \
             another core wrote cost {:.0} ns.",
            contestant.name(),
            profile.round_ns,
            profile.migrate_reads,
            profile.moved_ns,
            profile.fetch_ns,
        )
    }));
    remarks.extend([
        format!(
            "Assumed: clusters of {CLUSTER} cores; a line from another cluster costs \
             {FAR_FACTOR:.2} times as much (79.5 ns to 19 ns, published for a desktop \
             processor of two core complexes); each waiting core adds {WAITER_TRANSFERS} \
             transfers to a claim of the lock (Boyd-Wickizer and others, 2012), and its looks \
             take away the line in which the holder's data begin; private work takes \
             exponentially distributed times, holds vary evenly by half of their mean; where \
             others free, {:.0} % of all frees are by any other core; every core has a shard of \
             fit's per-cpu to itself.",
            100.0 * REMOTE_FREES
        ),
        "The model leaves out that memory bandwidth, the last cache and its interconnect are \
         shared by more than two cores, that threads are moved, growth of the pool (system \
         calls), and frees by other cores but in the variant named so."
            .to_owned(),
        format!(
            "fio on z3fold (randrw read): ticket locks; a round of the pool and the work of \
             the codec. The published machine was slower in all. On one that is slower by a \
             factor of {:.1} and takes {:.0} ns a round for codec and block layer, the figures \
             for pool-lock on 4 cores and per-cpu on 8 are fitted; pool-lock on 8 cores is \
             predicted.",
            randrw.0, randrw.1
        ),
        format!(
            "Throughput relative to pool-lock: published is the ratio of system times of a \
             kernel build, in which swapping is done; queued locks, held for \
             {KERNEL_HOLD_NS:.0} ns as was published for one lock. The time between two rounds \
             on a core, {build_ns:.0} ns, is fitted so that 32 pools gain what was published; \
             what class locks gain is predicted."
        ),
        format!(
            "Contentions: {CONTEXTS} contexts that compact without a pause, or one; queued \
             locks. The time between two rounds on the other cores, {compaction_ns:.0} ns, \
             is fitted to the share of contended acquisitions that was published for one \
             context, and counts are scaled to its acquisitions; concurrent contexts are \
             predicted. In a build they compact now and then, so the published fall is smaller."
        ),
    ]);
    if disturbed > 0 {
        remarks.push(format!(
            "Other processes disturbed {disturbed} of {runs} measurements with two threads \
             all the time: repeat on an idle machine."
        ));
    }
    remarks
}
