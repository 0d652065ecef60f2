//! What to compare, and how.

use zfold_pool::{
    Allocator, Chooser, Commit, Compaction, Grouping, Locking, PageSize, Pool, PoolOptions,
};
use zfold_store::{CodecKind, CodecSpec, Incompressible};

use super::error::Fault;
use crate::rng::Xorshift64;

/// What to compare, and how: every setting, defaults resolved.
///
/// # Examples
///
/// ```
/// use zfold_compare::compare::{Allocator, Plan, Preset};
/// let plan = Plan { seed: 7, ..Plan::of_preset(Preset::Linux6_1) };
/// assert_eq!(plan.chain, 4);
/// assert_eq!(plan.allocators, Allocator::KERNEL);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The allocators, in the order of the report.
    pub allocators: Vec<Allocator>,
    /// The codecs, in the order of the report.
    pub codecs: Vec<CodecSpec>,
    /// Size of the pages that are stored, and of the pool's pages.
    pub page_size: PageSize,
    /// Most pages that zsmalloc chains to a zspage, 4 to 16.
    pub chain: u32,
    /// How zsmalloc chooses the pages of a zspage.
    pub chooser: Chooser,
    /// What happens to pages that do not compress.
    pub incompressible: Incompressible,
    /// The kernel that is imitated; it decides what the other settings do not say.
    pub preset: Option<Preset>,
    /// Most bytes that a pool may take.
    pub limit_bytes: Option<u64>,
    /// The seed of the order of events.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            allocators: Allocator::KERNEL.to_vec(),
            codecs: vec![CodecKind::Lz4.into(), CodecKind::Zstd.into()],
            page_size: PageSize::KIB4,
            chain: 8,
            chooser: Chooser::LeastWaste,
            incompressible: Incompressible::Keep,
            preset: None,
            limit_bytes: None,
            seed: Xorshift64::SEED,
        }
    }
}

impl Plan {
    /// Returns the plan that imitates a kernel; but one lock guards a pool, so that its sizes are
    /// the same wherever they are measured.
    pub fn of_preset(preset: Preset) -> Self {
        let plan = Self { preset: Some(preset), ..Self::default() };
        match preset {
            Preset::Linux6_1 => Self {
                chain: 4,
                chooser: Chooser::UsedPercent,
                incompressible: Incompressible::Reject,
                ..plan
            },
            Preset::Linux6_18 => plan,
        }
    }

    /// Returns whether zswap puts its header before each object of this allocator: of those that
    /// can write objects out, in the kernels that did so.
    pub(super) fn has_key_header(&self, allocator: Allocator) -> bool {
        let may_evict = matches!(allocator, Allocator::Zbud | Allocator::Z3fold);
        self.preset == Some(Preset::Linux6_1) && may_evict
    }

    /// Returns a new pool of this allocator.
    pub(super) fn pool(&self, allocator: Allocator) -> Result<Box<dyn Pool>, Fault> {
        zfold_pool::create("compare", &self.pool_options(allocator)).map_err(Fault::Config)
    }

    /// Returns what a pool of this allocator is made of.
    pub(super) fn pool_options(&self, allocator: Allocator) -> PoolOptions {
        let mut options = PoolOptions::new(allocator);
        options.page_size = self.page_size;
        options.rules.chain = self.chain;
        options.rules.chooser = self.chooser;
        if self.preset.is_some() {
            options.locking = Some(Locking::PoolLock);
            options.rules.commit = Commit::Eager;
        }
        if self.preset == Some(Preset::Linux6_1) {
            options.rules.grouping = Grouping::Four;
            options.rules.compaction = Compaction::PerSource;
        }
        options
    }
}

/// A kernel whose zswap is imitated; all of them take a zspage's pages at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// `linux-6.1`: chains of at most 4 pages, the old chooser, fullness groups and compaction,
    /// pages that do not compress dropped, an 8-byte header before each object in zbud and z3fold.
    Linux6_1,
    /// `linux-6.18`: chains of at most 8 pages, the new chooser, pages that do not compress kept.
    Linux6_18,
}

impl Preset {
    /// Every preset, oldest first.
    pub const ALL: [Self; 2] = [Self::Linux6_1, Self::Linux6_18];

    /// Returns the name by which the preset is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux6_1 => "linux-6.1",
            Self::Linux6_18 => "linux-6.18",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_one_lock() {
        for preset in Preset::ALL {
            let options = Plan::of_preset(preset).pool_options(Allocator::Zsmalloc);
            assert_eq!(options.locking(), Locking::PoolLock);
        }
        let options = Plan::default().pool_options(Allocator::Zsmalloc);
        assert_ne!(options.locking(), Locking::PoolLock);
    }

    #[test]
    fn old_kernel_has_short_chains_and_headers() {
        let plan = Plan::of_preset(Preset::Linux6_1);
        assert_eq!((plan.chain, plan.chooser), (4, Chooser::UsedPercent));
        assert!(plan.has_key_header(Allocator::Zbud) && plan.has_key_header(Allocator::Z3fold));
        assert!(!plan.has_key_header(Allocator::Zsmalloc) && !plan.has_key_header(Allocator::Fit));
        assert!(!Plan::of_preset(Preset::Linux6_18).has_key_header(Allocator::Zbud));
    }
}
