//! The experiments, a row each: its question, what was published, and how it is run.

use std::fmt;

use crate::experiment::error::Error;
use crate::experiment::harness::{Published, Samples};
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
    pub(crate) published: &'static [Published],
    run: fn(&Settings, Progress<'_>, &mut Samples) -> Result<(), Error>,
}

impl Experiment {
    /// Every experiment, in the order in which all are run.
    pub const ALL: [Self; 10] = [
        Self {
            name: pool_lock::NAME,
            question: "What does one lock for all of zsmalloc cost?",
            published: &pool_lock::PUBLISHED,
            run: pool_lock::run,
        },
        Self {
            name: per_cpu_lists::NAME,
            question: "What does z3fold gain from per-CPU lists, and what density do they cost?",
            published: &per_cpu_lists::PUBLISHED,
            run: per_cpu_lists::run,
        },
        Self {
            name: compaction::NAME,
            question: "What is gained if only one thread compacts at a time?",
            published: &compaction::PUBLISHED,
            run: compaction::run,
        },
        Self {
            name: free::NAME,
            question: "How much faster is zs_free without the pool's lock?",
            published: &free::PUBLISHED,
            run: free::run,
        },
        Self {
            name: allocators::NAME,
            question: "Which of zbud, z3fold and zsmalloc is fastest, which smallest?",
            published: &allocators::PUBLISHED,
            run: allocators::run,
        },
        Self {
            name: writeback::NAME,
            question: "Should a full pool choose what leaves it, or its owner?",
            published: &[],
            run: writeback::run,
        },
        Self {
            name: lock_stat::NAME,
            question: "Which locks are contended, and how long do threads wait for them?",
            published: &[],
            run: lock_stat::run,
        },
        Self {
            name: scale::NAME,
            question: "How far does each lock design scale with the cores?",
            published: &scale::PUBLISHED,
            run: scale::run,
        },
        Self {
            name: pageout::NAME,
            question: "What does it cost to page memory out, fault it in and unmap it?",
            published: &pageout::PUBLISHED,
            run: pageout::run,
        },
        Self {
            name: build::NAME,
            question: "How long does a build with limited memory take?",
            published: &build::PUBLISHED,
            run: build::run,
        },
    ];

    /// Runs the experiment and returns what it found.
    ///
    /// # Errors
    ///
    /// When memory, a thread or an input cannot be had, or a byte comes back wrong; not when a tool
    /// or a right is missing for one of the contestants, which is left out and named. Swap, devices
    /// and cgroups are gone afterwards, even if this process is killed.
    pub fn run(&self, settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
        let mut samples = Samples::default();
        (self.run)(settings, progress, &mut samples)?;
        let figures = samples.figures(self.name, self.published);
        let Samples { histograms, remarks, .. } = samples;
        let (experiment, question) = (self.name, self.question);
        Ok(Outcome { experiment, question, figures, histograms, remarks })
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}
