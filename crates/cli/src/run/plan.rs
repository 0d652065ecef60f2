//! The plan of a run: the arguments, checked, with every default filled in.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use zfold_far::FarBacking;
use zfold_pool::{Pool, PoolOptions};
use zfold_run::{GroupLimit, LIMIT_MIN};
use zfold_store::pressure::memory_left;
use zfold_store::{CodecKind, CodecSpec, StoreOptions};

use crate::args::{Limit, ReportFormat, RunArgs};
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::backing::{self, BackingPlan, Target};
use crate::shared::exit::Failure;
use crate::shared::size::{Size, at_least};

/// The limit if the kernel does not report how much memory there is.
const LIMIT_UNKNOWN: u64 = 512 << 20;

/// Size of a new backing file, in limits.
const BACKING_LIMITS: u64 = 4;

/// A run: what was typed, and what follows from it.
#[derive(Clone, Debug)]
pub(super) struct RunPlan {
    pub(super) typed: RunArgs,
    pub(super) limit_bytes: u64,
    /// The codec, and behind it those that can be set while the run goes on.
    pub(super) codecs: Vec<CodecSpec>,
    backing: Option<BackingPlan>,
    /// How to report, if that was requested.
    pub(super) report: Option<ReportFormat>,
}

/// What [`RunPlan::store`] returns.
type Stored = (Box<dyn Pool>, StoreOptions, Option<Arc<FarBacking>>);

impl RunPlan {
    /// Returns the run that `args` describe.
    ///
    /// # Errors
    /// Settings that make no sense, status 2.
    pub(super) fn new(args: &RunArgs) -> Result<Self, Failure> {
        let size = |size: Option<Size>| size.map(|size| size.0);
        let limit_bytes = match args.limit {
            None => limit_by_default(),
            Some(Limit::Auto) => GroupLimit::first(),
            Some(Limit::Size(size)) => size.0,
        };
        at_least("--limit", limit_bytes, LIMIT_MIN)?;
        if let Some(limit) = size(args.store.store_limit) {
            at_least("--store-limit", limit, STORE_LIMIT_MIN)?;
        }
        let target = args.store.backing.as_deref().map(Target::parse).transpose()?;
        let backing = target.map(|target| BackingPlan {
            target,
            size: size(args.store.backing_size),
            force: args.store.force,
        });
        let asked = args.report.is_some() || args.report_file.is_some();
        let report = asked.then(|| args.report.unwrap_or(ReportFormat::Text));
        let mut typed = args.clone();
        // Its address may have a password.
        typed.store.backing = None;
        Ok(Self { limit_bytes, codecs: codecs(args.store.codec), backing, report, typed })
    }

    pub(super) fn program(&self) -> &OsStr {
        &self.typed.command[0]
    }

    /// Returns whether the limit is adjusted all the time.
    pub(super) fn is_auto(&self) -> bool {
        self.typed.limit == Some(Limit::Auto)
    }

    /// Returns whether nobody has said how much compressed pages may take, nor where more may go.
    pub(super) fn leaves_store_open(&self) -> bool {
        self.typed.store.store_limit.is_none() && self.backing.is_none()
    }

    /// Returns an empty pool, the options of the store over it, and its backing if that is on other
    /// machines. Creates the backing file.
    ///
    /// # Errors
    /// The pool or the backing cannot be had.
    pub(super) fn store(&self) -> Result<Stored, Failure> {
        let mut pool =
            PoolOptions::new(self.typed.allocator).with_page_size(zfold_run::page_size());
        if let Some(limit) = getrlimit(Resource::As).current {
            // With the tables beside it a quarter. The rest is for threads, and for what is known
            // of each page.
            let share = usize::try_from(limit / 12).unwrap_or(usize::MAX);
            pool.arena_bytes = pool.arena_bytes.min(share);
        }
        let pool = zfold_pool::create("run", &pool);
        let pool = pool.map_err(|error| Failure::new(error.to_string()))?;
        // The run itself decides on the number of slots.
        let mut options = StoreOptions::new(1, self.codecs[0]);
        options.recompression = self.codecs[1..].iter().map(|codec| (*codec).into()).collect();
        options.limit_bytes = self.typed.store.store_limit.map(|size| size.0);
        let mut far = None;
        if let Some(plan) = &self.backing {
            let size = self.limit_bytes.saturating_mul(BACKING_LIMITS);
            let opened = backing::open(plan, size)?;
            options.backing = Some(opened.options);
            far = opened.far;
        }
        Ok((pool, options, far))
    }
}

/// Returns `first` and the codecs that are offered beside it.
fn codecs(first: CodecSpec) -> Vec<CodecSpec> {
    let others = [CodecKind::Lz4, CodecKind::Page, CodecKind::Zstd].map(CodecSpec::from);
    std::iter::once(first).chain(others.into_iter().filter(|other| *other != first)).collect()
}

/// Returns half of the memory that this process can have, in whole MiB.
fn limit_by_default() -> u64 {
    let half = memory_left().map_or(LIMIT_UNKNOWN, |bytes| bytes / 2);
    // What little there is, is said to be too little by the kernel, not by zfold.
    (half >> 20 << 20).max(LIMIT_MIN)
}
