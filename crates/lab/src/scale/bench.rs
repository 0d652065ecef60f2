//! Simulates, and collects figures.

use zfold_pool::{Allocator, Locking};

use super::given::*;
use super::measured::{Effort, Measured};
use super::profile::Profile;
use super::sample::{Sample, operations_per_second};
use super::worker::OPERATIONS;
use crate::experiment::Figure;
use crate::simulate::{self, Crew, Family, Machine, Run, Step};

/// Simulates, and collects figures.
pub(super) struct Bench<'a> {
    pub(super) measured: &'a Measured,
    pub(super) effort: Effort,
    pub(super) seed: u64,
    pub(super) figures: Vec<Figure>,
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
        self.figures.push(figure.simulated());
    }

    /// Puts a published figure beside the one that was added last.
    fn publish(&mut self, published: f64) {
        if let Some(figure) = self.figures.last_mut() {
            figure.published = Some(published);
        }
    }

    /// Adds the throughput of every design, measured and simulated.
    pub(super) fn throughput(&mut self) {
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
    pub(super) fn remote_frees(&mut self) {
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
    pub(super) fn prediction_errors(&mut self) {
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
                self.figures.push(figure.simulated());
            }
        }
    }

    /// Adds fio on z3fold: a round is a page written over and a page read. Once with the codec and
    /// the costs of this machine, once fitted to the published machine; returns by what factor
    /// that one is slower, and its time for the codec and all else, in nanoseconds.
    pub(super) fn randrw(&mut self) -> (f64, f64) {
        let of = |locking| self.measured.profile(Allocator::Z3fold, locking);
        let (one, lists) = (of(Locking::PoolLock), of(Locking::PerCpu));
        let kib_per_second = |profile: &Profile, more_ns, cores| {
            let (machine, families) = (self.ticket_locks(profile), profile.families());
            let program = profile.program(more_ns, cores);
            PAGE_KIB * self.rounds_per_second(&machine, &families, program, cores)
        };
        let codec_ns = self.measured.host.compress_ns + self.measured.host.decompress_ns;
        // fio's work with per-CPU lists, which never wait, is all private.
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
    pub(super) fn build(&mut self) -> f64 {
        let of = |locking| {
            self.measured.profile(Allocator::Zsmalloc, locking).with_holds(KERNEL_HOLD_NS)
        };
        let (pool_lock, hierarchical) = (of(Locking::PoolLock), of(Locking::Hierarchical));
        let rate = |profile: &Profile, families: &[Family], rest_ns| {
            let (machine, cores) = (self.queued_locks(profile), BUILD_CORES);
            self.rounds_per_second(&machine, families, profile.program(rest_ns, cores), cores)
        };
        let one = |rest_ns| rate(&pool_lock, &pool_lock.families(), rest_ns);
        // As many pools as cores: the pool's data is each core's own.
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
    pub(super) fn compaction(&mut self) -> f64 {
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
    use super::*;

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
