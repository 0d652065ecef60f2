//! The experiments, a row each: its question, its procedure, and how it is run.

use std::fmt;

use crate::experiment::error::Error;
use crate::experiment::outcome::{Outcome, Progress, Settings};
use crate::{
    allocators, build, compaction, free, lock_stat, pageout, per_cpu_lists, pool_lock, scale,
    writeback,
};

/// An experiment.
///
/// # Examples
///
/// ```
/// use zfold_lab::Experiment;
/// let free = Experiment::ALL.iter().find(|experiment| experiment.name == "free");
/// let question = free.expect("its name").question;
/// assert_eq!(question, "How much faster is zs_free without the pool's lock?");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name by which it is written.
    pub name: &'static str,
    /// One line: the question that it answers.
    pub question: &'static str,
    /// A paragraph: the published measurement, the procedure here, and its meaning.
    pub story: &'static str,
    /// Arguments that suit it.
    pub example: &'static str,
    /// Whether its tables have statistics of locks.
    pub counts_locks: bool,
    run: fn(&Settings, Progress<'_>) -> Result<Outcome, Error>,
}

impl Experiment {
    /// Every experiment, in the order in which all are run.
    pub const ALL: [Self; 10] = [
        Self {
            name: pool_lock::NAME,
            question: "What does one lock for all of zsmalloc cost?",
            story: "\
                Linux 6.2 replaced the migration lock and the locks of the size classes by one \
                lock for the pool; writing files and building a kernel on zram took as long as \
                before, within the noise. Shows whether that also holds on this machine, and \
                whether it holds under the other lock designs.",
            example: "--quick",
            counts_locks: false,
            run: pool_lock::run,
        },
        Self {
            name: per_cpu_lists::NAME,
            question: "What does z3fold gain from per-CPU lists, and what density do they cost?",
            story: "\
                Linux 4.14 gave each CPU its own lists of pages with room; with 8 cores reads and \
                writes became almost six times as fast, at a slightly lower density (2.57 instead \
                of 2.65). Measures both on this machine.",
            example: "--quick",
            counts_locks: false,
            run: per_cpu_lists::run,
        },
        Self {
            name: compaction::NAME,
            question: "What is gained if only one thread compacts at a time?",
            story: "\
                Linux 6.4 turns away all but the first caller of compaction: threads that compact \
                the same classes contend for the lock that everybody else needs. Measures how much \
                contention that saves, how much sooner the work is done, and what dealing the \
                classes to all CPUs adds.",
            example: "--quick",
            counts_locks: true,
            run: compaction::run,
        },
        Self {
            name: free::NAME,
            question: "How much faster is zs_free without the pool's lock?",
            story: "\
                With the size class in the handle's cell, zs_free needs no lock of the pool, and \
                returns pages after it has released the class's lock. The published times are of \
                processes that unmap 256 MiB of compressed memory each, at the same time. Measures \
                what that gains here, by the number of workers.",
            example: "--html free.html",
            counts_locks: false,
            run: free::run,
        },
        Self {
            name: allocators::NAME,
            question: "Which of zbud, z3fold and zsmalloc is fastest, which smallest?",
            story: "\
                The published comparison of the three under zswap led to the removal of zbud and \
                z3fold from Linux: all are about as fast, and zbud takes a third more memory. \
                Measures times, latencies of stores and loads, and the largest pool, under one \
                load.",
            example: "--repeats 9",
            counts_locks: false,
            run: allocators::run,
        },
        Self {
            name: writeback::NAME,
            question: "Should a full pool choose what leaves it, or its owner?",
            story: "\
                Up to Linux 6.4 zswap had its pool empty the page that was written longest ago; \
                since 6.5 it writes out the entry that was used longest ago, whatever that frees. \
                Replays the same load both ways in each allocator. Shows how many pages are \
                written to the swap device, and how many of them are soon read again.",
            example: "--repeats 1",
            counts_locks: false,
            run: writeback::run,
        },
        Self {
            name: lock_stat::NAME,
            question: "Which locks are contended, and how long do threads wait for them?",
            story: "\
                Runs one load under every lock design with its locks watched. Shows where the time \
                goes: in waiting, in holding, or in cache lines of the locks that bounce between \
                CPUs.",
            example: "--repeats 1",
            counts_locks: true,
            run: lock_stat::run,
        },
        Self {
            name: scale::NAME,
            question: "How far does each lock design scale with the cores?",
            story: "\
                Measures what operations and locks cost on this machine, and simulates machines \
                with more cores from that. Shows where each design's throughput stops growing; not \
                how fast a machine of so many cores would really be.",
            example: "--html scale.html",
            counts_locks: false,
            run: scale::run,
        },
        Self {
            name: pageout::NAME,
            question: "What does it cost to page memory out, fault it in and unmap it?",
            story: "\
                Processes map 256 MiB each, write real pages, have them paged out, read a random \
                quarter of them and unmap all at the same time: by the kernel's swap to zram, with \
                zfold's regions, and under zfold run. Another process accesses random pages of \
                memory of which half may be resident. Shows what it costs each of them to page \
                out, fault in and unmap a page. Swap needs root; what cannot be set up is left out \
                and named. Swap and devices are gone afterwards, also after Ctrl-C.",
            example: "--quick",
            counts_locks: false,
            run: pageout::run,
        },
        Self {
            name: build::NAME,
            question: "How long does a build with limited memory take?",
            story: "\
                Builds a C project by make under zfold run with each allocator, under the kernel's \
                zram and zswap in a memory cgroup, and without a limit; limits are shares of the \
                memory that it takes without one. Shows what the limit costs in time, and what the \
                compressed pages take. Object files must be the same each time. Needs make and a C \
                compiler, and the kernel's swap root; what is missing is left out and named.",
            example: "--project src/linux --repeats 3",
            counts_locks: false,
            run: build::run,
        },
    ];

    /// Runs the experiment and returns what it found.
    ///
    /// # Errors
    ///
    /// When memory, a thread or an input cannot be had, or a byte comes back wrong.
    pub fn run(&self, settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
        (self.run)(settings, progress)
    }
}

/// By name, which no two share.
impl PartialEq for Experiment {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Experiment {}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_experiments_share_a_name() {
        let names = Experiment::ALL.map(|experiment| experiment.name);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(!names.contains(&"all") && !names.contains(&"process"), "other commands");
    }
}
