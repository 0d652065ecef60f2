//! The measurements of all designs on this machine.

use zfold_pool::{Allocator, Locking};

use super::host::Host;
use super::objects::{Contestant, Objects};
use super::pace::median;
use super::profile::Profile;
use super::sample::{Sample, compaction_hold_ns};
use crate::experiment::{Error, Progress, Settings};

/// The amount of measuring and simulating.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) repeats: u32,
    /// Undisturbed windows for each measured number.
    pub(super) windows: usize,
    /// Rounds simulated for each core, but at least `rounds_min` for all.
    pub(super) rounds: u64,
    pub(super) rounds_min: u64,
}

impl Effort {
    pub(super) fn new(settings: &Settings) -> Self {
        if settings.quick {
            let repeats = settings.repeats.clamp(1, 5);
            return Self { repeats, windows: 20, rounds: 60, rounds_min: 2_000 };
        }
        let windows = (100.0 * settings.scale).clamp(20.0, 2_000.0) as usize;
        Self { repeats: settings.repeats.max(1), windows, rounds: 300, rounds_min: 20_000 }
    }
}

/// The measurements on this machine.
pub(super) struct Measured {
    pub(super) host: Host,
    /// By how much two threads are slower than one that share neither pool nor objects.
    pub(super) slowdown: f64,
    pub(super) transfer_ns: f64,
    pub(super) compaction_hold_ns: f64,
    pub(super) contestants: Vec<(Contestant, Vec<Sample>, Profile)>,
}

impl Measured {
    pub(super) fn new(
        settings: &Settings,
        effort: &Effort,
        progress: Progress<'_>,
    ) -> Result<Self, Error> {
        let allocators = [Allocator::Zsmalloc, Allocator::Z3fold, Allocator::Fit];
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
    pub(super) fn profile(&self, allocator: Allocator, locking: Locking) -> &Profile {
        let wanted = Contestant { allocator, locking };
        let found = self.contestants.iter().find(|(contestant, ..)| *contestant == wanted);
        &found.expect("all designs are measured").2
    }
}
