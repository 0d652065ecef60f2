//! Scale: every lock design on 1 to 128 cores, simulated from what this machine measures.
//!
//! 1. Measured here: every design with one thread and with two, and the simulator's input.
//! 2. Simulated: the same on up to 128 cores in clusters of four. For one core and two the
//!    simulation stands beside the measurement, with its error.
//! 3. Simulated beside published figures: fio on z3fold with one list and with per-CPU lists, and
//!    compaction by many contexts and by one.
//!
//! Every repeat measures and simulates anew, at the speed that the machine has then.

mod measure;
mod profile;
mod simulate;

use zfold_pool::{Allocator, Locking};

use crate::experiment::content::Content;
use crate::experiment::harness::{Published, Samples, alternate_programs};
use crate::experiment::{Error, Progress, Settings};
pub(crate) use measure::NAME;
use measure::{Contestant, Host, OPERATIONS, compaction_hold_ns};
use profile::Profile;
use simulate::{Crew, Machine, Step};

/// Numbers of cores that are simulated; the first two are measured as well.
const CORES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const THROUGHPUT: &str = "throughput";
const PER_SECOND: &str = "operations/s";

/// Cores of a cluster, as in the machine on which per-CPU lists were measured. Assumed.
const CLUSTER: u32 = 4;
/// How much more a line from another cluster costs. Assumed: 79.5 ns to 19 ns, published for a
/// desktop processor of two core complexes.
const FAR_FACTOR: f64 = 79.5 / 19.0;
/// What each waiting core adds to a hand-over, in transfers. Assumed: the directory answers those
/// that look one after the other, and the next holder is on average in the middle (Boyd-Wickizer,
/// Kaashoek, Morris, Zeldovich, "Non-scalable locks are dangerous", 2012).
const WAITER_TRANSFERS: f64 = 0.5;
/// Looks of a waiting thread before it yields, as in the locks of the pools.
const SPINS: f64 = 100.0;

/// Cores on which fio read and wrote through z3fold.
const FIO_CORES: [u32; 2] = [4, 8];
const FIO: &str = "randrw read";
/// KiB of a page.
const PAGE_KIB: f64 = 4.0;

/// Cores of the kernel build with many compactions, and contexts seen at the same time.
const COMPACTION_CORES: u32 = 72;
const CONTEXTS: u32 = 9;
const CONTENDED: &str = "contended acquisitions";
/// Contended acquisitions in percent, with any number of contexts and with one.
const CONCURRENT_PERCENT: f64 = 100.0 * 2_343_871.0 / 6_247_686.0;
const SINGLE_PERCENT: f64 = 100.0 * 1_774_348.0 / 5_136_943.0;

pub(crate) const PUBLISHED: [Published; 5] = [
    ("z3fold pool-lock", 4, FIO, 496_883.0),
    ("z3fold pool-lock", 8, FIO, 265_942.0),
    ("z3fold per-cpu", 8, FIO, 1568.3 * 1024.0),
    ("concurrent", COMPACTION_CORES, CONTENDED, CONCURRENT_PERCENT),
    ("single", COMPACTION_CORES, CONTENDED, SINGLE_PERCENT),
];

/// Measures this machine and simulates larger ones.
///
/// # Errors
/// [`Error`] if a pool refuses an object, returns wrong bytes, or a thread cannot be started.
pub(crate) fn run(
    settings: &Settings,
    progress: Progress<'_>,
    samples: &mut Samples,
) -> Result<(), Error> {
    let of = |allocator: Allocator| {
        let designs = Locking::of(allocator).iter();
        designs.map(move |&locking| Contestant { allocator, locking })
    };
    let allocators = [Allocator::Zsmalloc, Allocator::Z3fold, Allocator::Fit];
    let contestants: Vec<Contestant> = allocators.into_iter().flat_map(of).collect();
    progress("cache lines, clock and codec", 0.0);
    let mut huge_len = usize::MAX;
    for contestant in &contestants {
        huge_len = huge_len.min(contestant.pool()?.huge_len());
    }
    // Neither pages of one word nor those that a store would keep as they are.
    let content = Content::of_lens(64..=huge_len);
    let (batches, rounds) = match settings.quick {
        true => (20, (60, 2_000)),
        false => ((100.0 * settings.scale).clamp(20.0, 2_000.0) as usize, (300, 20_000)),
    };
    let host = Host::measure(&content, batches)?;
    let tell = |what: &str, share: f64| progress(what, 0.02 + 0.98 * share);
    alternate_programs(settings, &tell, &contestants, samples, |&contestant, repeat, samples| {
        let seed = settings.seed.wrapping_add(repeat);
        let profile = Profile::measure(contestant, &content, &host, (batches, seed))?;
        let bench = Bench { host: &host, profile: &profile, rounds, seed };
        bench.throughput(&contestant.to_string(), samples);
        match (contestant.allocator, contestant.locking) {
            (Allocator::Z3fold, _) => bench.randrw(&contestant.to_string(), samples),
            (Allocator::Zsmalloc, Locking::PoolLock) => {
                bench.compaction(compaction_hold_ns(contestant, &content, &host)?, samples);
            }
            _ => {}
        }
        Ok(())
    })?;
    samples.remarks.extend(remarks(&host));
    Ok(())
}

/// Simulates one contestant.
struct Bench<'a> {
    host: &'a Host,
    profile: &'a Profile,
    /// Rounds simulated for each core, but at least the second number for all.
    rounds: (u64, u64),
    seed: u64,
}

impl Bench<'_> {
    /// Returns this machine with more cores; waiting cores yield, as the threads of a pool do.
    fn machine(&self) -> Machine {
        let Host { transfer_ns, look_ns, yield_ns, .. } = *self.host;
        Machine {
            cluster: CLUSTER,
            transfer_ns,
            far_factor: FAR_FACTOR,
            fair: false,
            look_ns,
            waiter_transfers: WAITER_TRANSFERS,
            patience_ns: SPINS * look_ns,
            yield_ns,
        }
    }

    /// Returns the same with a kernel's ticket locks.
    fn ticket_locks(&self) -> Machine {
        Machine { fair: true, patience_ns: f64::INFINITY, ..self.machine() }
    }

    fn simulate(&self, machine: &Machine, crews: &[Crew]) -> simulate::Run {
        let cores: u32 = crews.iter().map(|crew| crew.cores).sum();
        let rounds = (u64::from(cores) * self.rounds.0).max(self.rounds.1);
        simulate::run(machine, &self.profile.families(), crews, rounds, self.seed)
    }

    /// Returns the rounds that `cores` cores do in a second, with `more_ns` of work in each.
    fn rounds_per_second(&self, machine: &Machine, more_ns: f64, cores: u32) -> f64 {
        let program = self.profile.program(more_ns, cores);
        let run = self.simulate(machine, &[Crew { cores, program }]);
        run.rounds.iter().sum::<u64>() as f64 / run.elapsed_ns * 1e9
    }

    /// Adds the throughput, measured and simulated, and by how many percent the simulation misses
    /// what was measured.
    fn throughput(&self, name: &str, samples: &mut Samples) {
        for (at, cores) in CORES.into_iter().enumerate() {
            let rate = OPERATIONS * self.rounds_per_second(&self.machine(), 0.0, cores);
            if let Some(round_ns) = self.profile.round_ns.get(at) {
                let measured = OPERATIONS * f64::from(cores) * 1e9 / round_ns;
                samples.push(name, cores, THROUGHPUT, PER_SECOND, measured);
                let error = 100.0 * (rate / measured - 1.0);
                samples.simulated(name, cores, "prediction error", "%", error);
            }
            samples.simulated(name, cores, THROUGHPUT, PER_SECOND, rate);
        }
    }

    /// Adds fio on z3fold: a round is a page written over and a page read, with the codec.
    fn randrw(&self, name: &str, samples: &mut Samples) {
        for cores in FIO_CORES {
            let rate = self.rounds_per_second(&self.ticket_locks(), self.host.codec_ns, cores);
            samples.simulated(name, cores, FIO, "KB/s", PAGE_KIB * rate);
        }
    }

    /// Adds compaction by many contexts and by one: with the time between rounds that makes as many
    /// acquisitions contended with one as was published, many are predicted.
    fn compaction(&self, hold_ns: f64, samples: &mut Samples) {
        let machine = Machine { waiter_transfers: 0.0, ..self.ticket_locks() };
        let (ns, moved_ns) = (hold_ns * self.profile.slowdown, self.profile.moved_ns);
        let family = self.profile.family("pool").expect("the lock of the pool was taken");
        let hold = Step::Hold { share: 1.0, family, ns, moved_ns };
        let compact = vec![Step::Work { ns: self.host.look_ns }, hold];
        let percent = |contexts: u32, rest_ns: f64| {
            let program = self.profile.program(rest_ns, COMPACTION_CORES);
            let workers = Crew { cores: COMPACTION_CORES - contexts, program };
            let compactors = Crew { cores: contexts, program: compact.clone() };
            let run = self.simulate(&machine, &[workers, compactors]);
            100.0 * run.contentions[family] as f64 / run.acquisitions[family] as f64
        };
        let rest_ns = fit(1.0, 1e6, |rest_ns| percent(1, rest_ns) > SINGLE_PERCENT);
        for (variant, contexts) in [("concurrent", CONTEXTS), ("single", 1)] {
            let value = percent(contexts, rest_ns);
            samples.simulated(variant, COMPACTION_CORES, CONTENDED, "%", value);
        }
    }
}

/// Returns the value between `low` and `high` above which `holds` is false, within 1 %.
fn fit(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Returns the measured costs and the assumptions.
fn remarks(host: &Host) -> [String; 2] {
    let Host { transfer_ns, look_ns, yield_ns, empty_hold_ns, codec_ns } = host;
    let measured = format!(
        "Measured here: a line from the other core {transfer_ns:.0} ns, a look of a waiting thread \
         {look_ns:.0} ns and {yield_ns:.0} ns once it yields, an empty hold under watch \
         {empty_hold_ns:.0} ns (subtracted from all holds), LZ4 {codec_ns:.0} ns a page."
    );
    let assumed = format!(
        "Assumed: clusters of {CLUSTER} cores; a line from another costs {FAR_FACTOR:.2} times as \
         much; each waiting core adds {WAITER_TRANSFERS} transfers to a claim of the lock; any \
         number of cores slow each other down as much as two that share nothing."
    );
    [measured, assumed]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::outcome;

    #[test]
    fn all_figures_are_there() {
        let outcome = outcome(NAME);
        let count = |metric: &str, simulated: bool| {
            let of = outcome.figures.iter().filter(|figure| figure.metric == metric);
            of.filter(|figure| figure.simulated == simulated).count()
        };
        // Eight designs.
        assert_eq!((count(THROUGHPUT, false), count(THROUGHPUT, true)), (8 * 2, 8 * 8));
        assert_eq!(count("prediction error", true), 8 * 2);
        assert_eq!((count(FIO, true), count(CONTENDED, true)), (4, 2));
        assert!(outcome.remarks.iter().any(|remark| remark.starts_with("Assumed: ")));
    }

    #[test]
    fn a_fit_finds_where_it_changes() {
        let found = fit(1.0, 1e6, |value| value < 1234.0);
        assert!((found / 1234.0 - 1.0).abs() < 0.011, "{found}");
    }
}
