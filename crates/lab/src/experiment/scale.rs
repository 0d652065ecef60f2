//! Scale: every lock design on 1 to 128 cores, simulated from what this machine measures.
//!
//! 1. Measured here: every design with one thread and with two, and what the simulator needs.
//! 2. Simulated: the same on up to 128 cores in clusters of four. For one core and two the
//!    simulation stands beside the measurement, with its error.
//! 3. Simulated beside published figures: fio on z3fold with one list and with per-CPU lists, a
//!    kernel build on zsmalloc with one lock and with class locks, compaction by many contexts and
//!    by one.
//!
//! The remarks of the outcome name every parameter that is assumed rather than measured.

mod calibrate;
mod pace;

use zfold_pool::{Allocator, Locking};

use self::calibrate::{
    Contestant, Host, OPERATIONS, Objects, Profile, Sample, compaction_hold_ns, disturbed,
    operations_per_second,
};
use self::pace::median;
use super::{Error, Figure, Outcome, Progress, Settings};
use crate::simulate::{self, Crew, Family, Machine, Run, Step};

/// The name on the command line.
pub const NAME: &str = "scale";

/// Numbers of cores that are simulated.
const CORES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Numbers of threads that are measured.
const MEASURED: [u32; 2] = [1, 2];
const THROUGHPUT: &str = "throughput";
const PER_SECOND: &str = "operations/s";

/// Cores of a cluster, as in the machine on which per-CPU lists were measured. Assumed.
const CLUSTER: u32 = 4;
/// How much dearer a line from another cluster is. Assumed: 79.5 ns to 19 ns, published for a
/// desktop processor of two core complexes.
const FAR_FACTOR: f64 = 79.5 / 19.0;
/// What each waiting core adds to a hand-over, in transfers. Assumed: the directory answers those
/// that look one after the other, and the next holder is on average in the middle (Boyd-Wickizer,
/// Kaashoek, Morris, Zeldovich, "Non-scalable locks are dangerous", 2012).
const WAITER_TRANSFERS: f64 = 0.5;
/// Share of frees that another core hands to the owner, for the variant of per-cpu that shows
/// what they cost. Assumed.
const REMOTE_FREES: f64 = 0.1;

/// Cores on which fio read and wrote through z3fold; KiB/s that it read with one list, and with
/// per-CPU lists on all of them.
const FIO_CORES: [u32; 2] = [4, 8];
const FIO_KIB: [f64; 2] = [496_883.0, 265_942.0];
const FIO_LISTS_KIB: f64 = 1568.3 * 1024.0;
const FITTED_RANDRW: &str = "randrw read on a machine as slow as the published one";
/// KiB of a page.
const PAGE_KIB: f64 = 4.0;

/// Cores of the kernel build with class locks, and its system time in seconds: 32 pools, one pool
/// with one lock, one pool with class locks.
const BUILD_CORES: u32 = 32;
const BUILD_SYS_S: [f64; 3] = [1452.73, 1844.69, 1469.71];
const BUILD_METRIC: &str = "throughput relative to pool-lock";
/// Mean time for which a kernel held the one lock of its pool. Published.
const KERNEL_HOLD_NS: f64 = 990.0;

/// Cores of the kernel build with many compactions, and contexts seen at the same time.
const COMPACTION_CORES: u32 = 72;
const CONTEXTS: u32 = 9;
/// Contentions with any number of contexts, with one, and the latter's acquisitions.
const CONTENTIONS: [f64; 2] = [2_343_871.0, 1_774_348.0];
const ACQUISITIONS: f64 = 5_136_943.0;

/// Measures this machine and simulates larger ones.
///
/// # Errors
/// [`Error`] if a pool refuses an object, returns wrong bytes, or a thread cannot be started.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let effort = Effort::new(settings);
    let measured = Measured::new(settings, &effort, progress)?;
    let seed = settings.seed;
    let mut bench = Bench { measured: &measured, effort, seed, figures: Vec::new() };
    progress("simulating 1 to 128 cores", 0.8);
    bench.throughput();
    bench.remote_frees();
    bench.prediction_errors();
    progress("simulating published machines", 0.9);
    let randrw = bench.randrw();
    let build_ns = bench.build();
    let compaction_ns = bench.compaction();
    progress("done", 1.0);
    Ok(Outcome {
        experiment: NAME,
        title: "lock designs on 1 to 128 cores, simulated from measurements of this machine"
            .to_owned(),
        figures: bench.figures,
        histograms: Vec::new(),
        remarks: measured.remarks(randrw, build_ns, compaction_ns),
    })
}

/// How much is measured and simulated.
#[derive(Clone, Copy, Debug)]
struct Effort {
    repeats: u32,
    /// Undisturbed windows for each measured number.
    windows: usize,
    /// Rounds simulated for each core, but at least `rounds_min` for all.
    rounds: u64,
    rounds_min: u64,
}

impl Effort {
    fn new(settings: &Settings) -> Self {
        if settings.quick {
            let repeats = settings.repeats.clamp(1, 5);
            return Self { repeats, windows: 20, rounds: 60, rounds_min: 2_000 };
        }
        let windows = (100.0 * settings.scale).clamp(20.0, 2_000.0) as usize;
        Self { repeats: settings.repeats.max(1), windows, rounds: 300, rounds_min: 20_000 }
    }
}

/// What this machine measured.
struct Measured {
    host: Host,
    /// By how much two threads are slower than one that share neither pool nor objects.
    slowdown: f64,
    transfer_ns: f64,
    compaction_hold_ns: f64,
    contestants: Vec<(Contestant, Vec<Sample>, Profile)>,
}

impl Measured {
    fn new(settings: &Settings, effort: &Effort, progress: Progress<'_>) -> Result<Self, Error> {
        let allocators = [Allocator::Zsmalloc, Allocator::Z3fold];
        let contestants: Vec<Contestant> = allocators
            .into_iter()
            .flat_map(|allocator| {
                let of = Locking::of(allocator).iter();
                of.map(move |&locking| Contestant { allocator, locking })
            })
            .collect();
        progress("cache lines, clock and codec", 0.0);
        let mut huge_len = usize::MAX;
        for contestant in &contestants {
            huge_len = huge_len.min(contestant.pool()?.huge_len());
        }
        let objects = Objects::new(huge_len)?;
        let host = Host::measure(&objects, effort.windows)?;
        let mut samples = vec![Vec::new(); contestants.len()];
        let parts = f64::from(effort.repeats) * contestants.len() as f64;
        for repeat in 0..effort.repeats {
            for (index, &contestant) in contestants.iter().enumerate() {
                let part = f64::from(repeat) * contestants.len() as f64 + index as f64;
                let of = effort.repeats;
                let what = format!("{}, repeat {} of {of}", contestant.name(), repeat + 1);
                progress(&what, 0.05 + 0.75 * part / parts);
                let seed = settings.seed.wrapping_add(u64::from(repeat));
                let sample = Sample::measure(contestant, &objects, &host, effort.windows, seed)?;
                samples[index].push(sample);
            }
        }
        let pool_lock = Contestant { allocator: Allocator::Zsmalloc, locking: Locking::PoolLock };
        let compaction_hold_ns = compaction_hold_ns(pool_lock, &objects, &host, settings.seed)?;
        let mut profiles: Vec<Profile> =
            samples.iter().map(|samples| Profile::new(samples)).collect();
        // Of the machine, not of a design.
        let slowdown = median(profiles.iter().map(|profile| profile.slowdown));
        let transfer_ns = median(profiles.iter().map(|profile| profile.transfer_ns));
        for profile in &mut profiles {
            (profile.slowdown, profile.transfer_ns) = (slowdown, transfer_ns);
        }
        let contestants = contestants.into_iter().zip(samples).zip(profiles);
        let contestants = contestants.map(|((a, b), c)| (a, b, c)).collect();
        Ok(Self { host, slowdown, transfer_ns, compaction_hold_ns, contestants })
    }

    /// Returns the profile of a design, all of which are measured.
    fn profile(&self, allocator: Allocator, locking: Locking) -> &Profile {
        let wanted = Contestant { allocator, locking };
        let found = self.contestants.iter().find(|(contestant, ..)| *contestant == wanted);
        &found.expect("all designs are measured").2
    }

    /// Returns what is measured, what is assumed and what is left out.
    fn remarks(&self, randrw: (f64, f64), build_ns: f64, compaction_ns: f64) -> Vec<String> {
        let Self { host, slowdown, transfer_ns, compaction_hold_ns, .. } = self;
        let samples = self.contestants.iter().flat_map(|(_, samples, _)| samples);
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
        remarks.extend(self.contestants.iter().map(|(contestant, _, profile)| {
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
                 others free, {:.0} % of all frees are by any other core.",
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
}

/// Simulates, and collects figures.
struct Bench<'a> {
    measured: &'a Measured,
    effort: Effort,
    seed: u64,
    figures: Vec<Figure>,
}

impl Bench<'_> {
    /// Returns this machine with more cores; waiting cores yield, as the threads of a pool do.
    fn machine(&self, profile: &Profile) -> Machine {
        let host = &self.measured.host;
        Machine {
            cluster: CLUSTER,
            transfer_ns: profile.transfer_ns,
            far_factor: FAR_FACTOR,
            fair: false,
            look_ns: host.look_ns,
            waiter_transfers: WAITER_TRANSFERS,
            patience_ns: host.patience_ns(),
            yield_ns: host.yield_ns,
        }
    }

    /// Returns the same with a kernel's ticket locks.
    fn ticket_locks(&self, profile: &Profile) -> Machine {
        Machine { fair: true, patience_ns: f64::INFINITY, ..self.machine(profile) }
    }

    /// Returns the same with a kernel's queued locks.
    fn queued_locks(&self, profile: &Profile) -> Machine {
        Machine { waiter_transfers: 0.0, ..self.ticket_locks(profile) }
    }

    fn simulate(&self, machine: &Machine, families: &[Family], crews: &[Crew]) -> Run {
        let cores: u32 = crews.iter().map(|crew| crew.cores).sum();
        let rounds = (u64::from(cores) * self.effort.rounds).max(self.effort.rounds_min);
        simulate::run(machine, families, crews, rounds, self.seed)
    }

    /// Returns the rounds that `cores` cores do in a second.
    fn rounds_per_second(
        &self,
        machine: &Machine,
        families: &[Family],
        program: Vec<Step>,
        cores: u32,
    ) -> f64 {
        self.simulate(machine, families, &[Crew { cores, program }]).rounds_per_second(cores)
    }

    fn operations_per_second(&self, profile: &Profile, cores: u32) -> f64 {
        let (machine, families) = (self.machine(profile), profile.families());
        let program = profile.program(0.0, cores);
        OPERATIONS * self.rounds_per_second(&machine, &families, program, cores)
    }

    /// Adds a simulated figure.
    fn push(&mut self, variant: &str, cores: u32, metric: &str, unit: &'static str, value: f64) {
        let figure = Figure::measured(NAME, variant, cores, metric, unit, &[value]);
        self.figures.push(figure.as_simulated());
    }

    /// Puts a published figure beside the one that was added last.
    fn publish(&mut self, published: f64) {
        if let Some(figure) = self.figures.last_mut() {
            figure.published = Some(published);
        }
    }

    /// Adds the throughput of every design, measured and simulated.
    fn throughput(&mut self) {
        for (contestant, samples, profile) in &self.measured.contestants {
            let name = contestant.name();
            for workers in MEASURED {
                let values = operations_per_second(samples, workers);
                let figure =
                    Figure::measured(NAME, &*name, workers, THROUGHPUT, PER_SECOND, &values);
                self.figures.push(figure);
            }
            for cores in CORES {
                let rate = self.operations_per_second(profile, cores);
                self.push(&name, cores, THROUGHPUT, PER_SECOND, rate);
            }
        }
    }

    /// Adds per-cpu with objects that other cores than their owner free.
    fn remote_frees(&mut self) {
        let profile = self.measured.profile(Allocator::Zsmalloc, Locking::PerCpu);
        let (locks, held_ns) = profile.locked();
        let push = Step::Push { share: REMOTE_FREES, ns: held_ns / locks.max(1.0) };
        let name = format!("zsmalloc per-cpu, {:.0} % freed by others", 100.0 * REMOTE_FREES);
        let (machine, families) = (self.machine(profile), profile.families());
        for cores in CORES {
            let mut program = profile.program(0.0, cores);
            program.push(push);
            let rate = self.rounds_per_second(&machine, &families, program, cores);
            self.push(&name, cores, THROUGHPUT, PER_SECOND, OPERATIONS * rate);
        }
    }

    /// Adds by how many percent the simulation misses what was measured, in each repeat, at the
    /// speed that the machine had then.
    fn prediction_errors(&mut self) {
        for (contestant, samples, profile) in &self.measured.contestants {
            for workers in MEASURED {
                let error = |sample: &Sample| {
                    let simulated = self.operations_per_second(&profile.at(sample), workers);
                    let sample = std::slice::from_ref(sample);
                    100.0 * (simulated / operations_per_second(sample, workers)[0] - 1.0)
                };
                let errors: Vec<f64> = samples.iter().map(error).collect();
                let (name, metric) = (contestant.name(), "prediction error");
                let figure = Figure::measured(NAME, name, workers, metric, "%", &errors);
                self.figures.push(figure.as_simulated());
            }
        }
    }

    /// Adds fio on z3fold: a round is a page written over and a page read. Once with the codec and
    /// the costs of this machine, once fitted to the published machine; returns by what factor
    /// that one is slower, and its time for the codec and all else, in nanoseconds.
    fn randrw(&mut self) -> (f64, f64) {
        let of = |locking| self.measured.profile(Allocator::Z3fold, locking);
        let (one, lists) = (of(Locking::PoolLock), of(Locking::PerCpu));
        let kib_per_second = |profile: &Profile, more_ns, cores| {
            let (machine, families) = (self.ticket_locks(profile), profile.families());
            let program = profile.program(more_ns, cores);
            PAGE_KIB * self.rounds_per_second(&machine, &families, program, cores)
        };
        let codec_ns = self.measured.host.compress_ns + self.measured.host.decompress_ns;
        // What fio did with per-CPU lists, which wait for nobody, is all private.
        let lists_ns = f64::from(FIO_CORES[1]) * PAGE_KIB / FIO_LISTS_KIB * 1e9;
        let rest_ns = |factor: f64| (lists_ns / lists.slowdown - factor * lists.round_ns).max(0.0);
        let factor = fit(1.0, lists_ns / lists.round_ns, |factor| {
            kib_per_second(&one.slower(factor), rest_ns(factor), FIO_CORES[0]) > FIO_KIB[0]
        });
        let mut figures = Vec::new();
        for (metric, factor, more_ns) in
            [("randrw read", 1.0, codec_ns), (FITTED_RANDRW, factor, rest_ns(factor))]
        {
            for (name, profile, published) in [
                ("z3fold pool-lock", one, FIO_KIB.map(Some)),
                ("z3fold per-cpu", lists, [None, Some(FIO_LISTS_KIB)]),
            ] {
                for (cores, published) in FIO_CORES.into_iter().zip(published) {
                    let value = kib_per_second(&profile.slower(factor), more_ns, cores);
                    figures.push((name, cores, metric, value, published));
                }
            }
        }
        for (name, cores, metric, value, published) in figures {
            self.push(name, cores, metric, "KB/s", value);
            published.into_iter().for_each(|published| self.publish(published));
        }
        (factor, rest_ns(factor))
    }

    /// Adds the kernel build with class locks; returns the time between rounds that was fitted,
    /// in nanoseconds.
    fn build(&mut self) -> f64 {
        let of = |locking| {
            self.measured.profile(Allocator::Zsmalloc, locking).with_holds(KERNEL_HOLD_NS)
        };
        let (pool_lock, hierarchical) = (of(Locking::PoolLock), of(Locking::Hierarchical));
        let rate = |profile: &Profile, families: &[Family], rest_ns| {
            let (machine, cores) = (self.queued_locks(profile), BUILD_CORES);
            self.rounds_per_second(&machine, families, profile.program(rest_ns, cores), cores)
        };
        let one = |rest_ns| rate(&pool_lock, &pool_lock.families(), rest_ns);
        // As many pools as cores: what is the pool's is each core's own.
        let own = vec![Family::Own; pool_lock.families().len()];
        let many = |rest_ns| rate(&pool_lock, &own, rest_ns);
        let [pools_s, pool_s, classes_s] = BUILD_SYS_S;
        let rest_ns = fit(1.0, 1e6, |rest_ns| many(rest_ns) / one(rest_ns) > pool_s / pools_s);
        let pools = many(rest_ns) / one(rest_ns);
        let classes = rate(&hierarchical, &hierarchical.families(), rest_ns) / one(rest_ns);
        self.push("zsmalloc 32 pools", BUILD_CORES, BUILD_METRIC, "times", pools);
        self.publish(pool_s / pools_s);
        self.push("zsmalloc hierarchical", BUILD_CORES, BUILD_METRIC, "times", classes);
        self.publish(pool_s / classes_s);
        rest_ns
    }

    /// Adds compaction by many contexts and by one; returns the time between rounds that was
    /// fitted, in nanoseconds.
    fn compaction(&mut self) -> f64 {
        let profile = self.measured.profile(Allocator::Zsmalloc, Locking::PoolLock);
        let (machine, families) = (self.queued_locks(profile), profile.families());
        let pool = profile.family("pool").expect("the lock of the pool was taken");
        let (ns, moved_ns) = (self.measured.compaction_hold_ns, profile.moved_ns);
        let compact = vec![
            Step::Work { ns: self.measured.host.look_ns },
            Step::Hold { share: 1.0, family: pool, ns: ns * profile.slowdown, moved_ns },
        ];
        let counts = |contexts: u32, rest_ns: f64| {
            let program = profile.program(rest_ns, COMPACTION_CORES);
            let workers = Crew { cores: COMPACTION_CORES - contexts, program };
            let compactors = Crew { cores: contexts, program: compact.clone() };
            let run = self.simulate(&machine, &families, &[workers, compactors]);
            (run.contentions[pool] as f64, run.acquisitions[pool] as f64)
        };
        let [concurrent_published, single_published] = CONTENTIONS;
        let rest_ns = fit(1.0, 1e6, |rest_ns| {
            let (contentions, acquisitions) = counts(1, rest_ns);
            contentions / acquisitions > single_published / ACQUISITIONS
        });
        let (single, acquisitions) = counts(1, rest_ns);
        let (concurrent, _) = counts(CONTEXTS, rest_ns);
        let scale = ACQUISITIONS / acquisitions;
        let (cores, metric) = (COMPACTION_CORES, "contentions");
        self.push("concurrent", cores, metric, "count", scale * concurrent);
        self.publish(concurrent_published);
        self.push("single", cores, metric, "count", scale * single);
        self.publish(single_published);
        let fall = |before: f64, after: f64| 100.0 * (1.0 - after / before);
        self.push("single", cores, "fall in contentions", "%", fall(concurrent, single));
        self.publish(fall(concurrent_published, single_published));
        rest_ns
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

#[cfg(test)]
mod tests {
    use super::super::harness::tests::tiny;
    use super::*;

    #[test]
    fn all_figures_are_there() {
        let settings = Settings { scale: 1.0, ..tiny() };
        let outcome = run(&settings, &|_, done| assert!((0.0..=1.0).contains(&done)));
        let outcome = outcome.expect("an outcome");
        let found = |metric: &str, variant: &str, workers: u32, simulated: bool| {
            let mut of = outcome.figures.iter().filter(|figure| {
                (&*figure.metric, &*figure.variant) == (metric, variant)
                    && (figure.workers, figure.simulated) == (workers, simulated)
            });
            let figure = of.next().unwrap_or_else(|| panic!("{metric} of {variant}, {workers}"));
            assert!(of.next().is_none(), "{metric} of {variant}, {workers} twice");
            assert!(figure.value.is_finite(), "{figure:?}");
            figure.published
        };
        for design in [
            "zsmalloc hierarchical",
            "zsmalloc pool-lock",
            "zsmalloc class-index",
            "zsmalloc per-cpu",
            "z3fold pool-lock",
            "z3fold per-cpu",
        ] {
            for workers in MEASURED {
                found(THROUGHPUT, design, workers, false);
                found("prediction error", design, workers, true);
            }
            CORES.iter().for_each(|&cores| _ = found(THROUGHPUT, design, cores, true));
        }
        assert_eq!(found("randrw read", "z3fold pool-lock", 4, true), Some(496_883.0));
        assert_eq!(found("randrw read", "z3fold pool-lock", 8, true), Some(265_942.0));
        let lists = found("randrw read", "z3fold per-cpu", 8, true);
        assert_eq!(lists.map(f64::round), Some(1_605_939.0));
        assert_eq!(found("contentions", "concurrent", 72, true), Some(2_343_871.0));
        assert_eq!(found("contentions", "single", 72, true), Some(1_774_348.0));
        let fall = found("fall in contentions", "single", 72, true);
        assert!(fall.is_some_and(|fall| (fall - 24.3).abs() < 0.05), "{fall:?}");
        let classes = found(BUILD_METRIC, "zsmalloc hierarchical", 32, true);
        assert!(classes.is_some_and(|times| (times - 1.255).abs() < 0.001), "{classes:?}");
        assert!(outcome.remarks.iter().any(|remark| remark.starts_with("Assumed: ")));
    }

    /// A lock that is held for a quarter of the time stands for the pool lock of z3fold.
    #[test]
    fn a_second_cluster_costs_a_pool_lock_throughput_and_lists_nothing() {
        let machine = Machine {
            cluster: CLUSTER,
            transfer_ns: 50.0,
            far_factor: FAR_FACTOR,
            fair: true,
            look_ns: 20.0,
            waiter_transfers: WAITER_TRANSFERS,
            patience_ns: f64::INFINITY,
            yield_ns: 0.0,
        };
        let rate = |family: Family, cores| {
            let hold = Step::Hold { share: 1.0, family: 0, ns: 250.0, moved_ns: 100.0 };
            let crew = Crew { cores, program: vec![Step::Work { ns: 750.0 }, hold] };
            simulate::run(&machine, &[family], &[crew], 20_000, 1).rounds_per_second(cores)
        };
        let pool = |cores| rate(Family::Weighted(vec![1.0]), cores);
        assert!(pool(8) < 0.9 * pool(4), "{} {}", pool(8), pool(4));
        assert!(rate(Family::Own, 8) > 4.0 * pool(8));
        assert!(rate(Family::Own, 8) > 1.9 * rate(Family::Own, 4));
    }

    #[test]
    fn a_fit_finds_where_it_changes() {
        let found = fit(1.0, 1e6, |value| value < 1234.0);
        assert!((found / 1234.0 - 1.0).abs() < 0.011, "{found}");
    }
}
