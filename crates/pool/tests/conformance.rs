//! Every allocator, on every page source and page size, with and without reclaim, z3fold also with
//! a shard for every CPU, against every check of the contract.

use std::sync::Arc;

use zfold_pool::source::PageSource;
use zfold_pool::{
    AllocError, Allocator, Chooser, Commit, Compaction, ConfigError, Contexts, Grouping,
    KernelRules, Locking, PageCount, PageSize, PoolOptions, Upkeep, create,
};
use zfold_testing::pool::{CHECKS, FailingPages, HeapPages, Model, Op};

/// Arena of a pool under test: small, so that running out is within reach.
const ARENA_BYTES: usize = if cfg!(miri) { 4 << 20 } else { 256 << 20 };

fn options(allocator: Allocator, page_size: PageSize) -> PoolOptions {
    PoolOptions::new(allocator).with_page_size(page_size).with_arena_bytes(ARENA_BYTES)
}

fn with_reclaim() -> impl Iterator<Item = Allocator> {
    Allocator::ALL.into_iter().filter(|allocator| allocator.has_reclaim())
}

/// z3fold with a shard for each of `cpus`.
fn per_cpu(cpus: usize, upkeep: Upkeep) -> PoolOptions {
    let mut options = options(Allocator::Z3fold, PageSize::KIB4);
    options.rules.upkeep = upkeep;
    options.with_locking(Locking::PerCpu).with_cpus(cpus)
}

fn conforms(options: &PoolOptions) {
    for (sentence, check) in CHECKS {
        println!("{:?} {}: {sentence}", options.allocator, options.page_size);
        check(&|| create("conformance", options).expect("a pool"));
    }
}

#[test]
fn every_allocator_conforms_on_every_page_size() {
    for allocator in Allocator::ALL {
        for page_size in [PageSize::KIB4, PageSize::KIB16, PageSize::KIB64] {
            conforms(&options(allocator, page_size));
        }
    }
}

#[test]
fn every_allocator_conforms_on_the_heap() {
    for allocator in Allocator::ALL {
        let heap: Arc<dyn PageSource> = Arc::new(HeapPages);
        conforms(&options(allocator, PageSize::KIB4).with_source(heap));
    }
}

#[test]
fn every_allocator_conforms_with_reclaim() {
    for allocator in with_reclaim() {
        conforms(&options(allocator, PageSize::KIB4).with_reclaim(true));
    }
}

#[test]
fn z3fold_conforms_with_a_shard_for_every_cpu() {
    for upkeep in [Upkeep::Inline, Upkeep::Workers] {
        for cpus in [1, 2, 5] {
            println!("{cpus} CPUs, {upkeep:?}");
            conforms(&per_cpu(cpus, upkeep));
        }
        for contexts in Contexts::ALL {
            let mut options = per_cpu(2, upkeep).with_page_size(PageSize::KIB64);
            options.rules.contexts = contexts;
            conforms(&options);
        }
        conforms(&per_cpu(2, upkeep).with_source(Arc::new(HeapPages)));
    }
}

/// On one CPU a shard is the whole pool: the same pages at every moment.
#[test]
fn a_shard_packs_as_densely_as_the_pool_lock() {
    let make = |options| create("density", &options).unwrap();
    let (shard, plain) = (
        make(per_cpu(1, Upkeep::Inline)),
        make(per_cpu(1, Upkeep::Inline).with_locking(Some(Locking::PoolLock))),
    );
    let (mut a, mut b) = (Model::new(&*shard), Model::new(&*plain));
    for op in Op::random(11, shard.len_max()).take(20_000) {
        a.apply(&op);
        b.apply(&op);
        assert_eq!(shard.stats(), plain.stats());
    }
    assert!(plain.stats().pages > PageCount(100));
}

/// One thread meets nobody at a lock, so it uses one shard, on whichever CPU it runs.
#[test]
fn one_thread_fills_fit_as_densely_under_either_design() {
    let pool = |locking| {
        let options = options(Allocator::Fit, PageSize::KIB4).with_cpus(4);
        create("density", &options.with_locking(Some(locking))).unwrap()
    };
    let (shards, plain) = (pool(Locking::PerCpu), pool(Locking::PoolLock));
    assert_eq!((shards.lock_stats().len(), plain.lock_stats().len()), (4, 1));
    let (mut a, mut b) = (Model::new(&*shards), Model::new(&*plain));
    for op in Op::random(11, shards.len_max()).take(20_000) {
        a.apply(&op);
        b.apply(&op);
        let [a, b] = [shards.stats(), plain.stats()];
        assert_eq!((a.pages, a.idle_pages, a.objects), (b.pages, b.idle_pages, b.objects));
    }
    assert!(plain.stats().pages > PageCount(100));
}

/// Every shard needs its part of the arena; where that would be too small there are fewer.
#[test]
fn a_small_arena_has_fewer_shards() {
    for (arena_bytes, shards) in [(1 << 20, 1), (5 << 20, 5), (64 << 20, 7)] {
        let options = per_cpu(7, Upkeep::Workers).with_arena_bytes(arena_bytes);
        let pool = create("small", &options).unwrap();
        assert_eq!(pool.lock_stats().len(), shards);
        assert_eq!(pool.lock_stats()[shards - 1].name, "cpu");
        assert_eq!(pool.lock_stats()[shards - 1].index, shards - 1);
    }
}

/// A pool that runs out of memory has used all of it, also what the other CPUs had.
#[test]
fn all_shards_fill_before_an_allocation_fails() {
    for upkeep in [Upkeep::Inline, Upkeep::Workers] {
        let options = per_cpu(4, upkeep).with_arena_bytes(4 << 20);
        let pool = create("full", &options).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| pool.insert(&[1; 4096]).ok()).collect();
        assert_eq!(pool.stats().pages, PageCount(1024));
        assert!(matches!(pool.insert(&[1; 4096]), Err(AllocError::NoMemory(_))));
        held.into_iter().for_each(|handle| pool.free(handle).unwrap());
        pool.check();
        assert_eq!(pool.stats().pages, PageCount::ZERO);
    }
}

#[test]
fn every_lock_design_conforms_with_all_contexts() {
    for allocator in Allocator::ALL {
        for &locking in Locking::of(allocator) {
            for contexts in Contexts::ALL {
                let mut options = options(allocator, PageSize::KIB4).with_locking(locking);
                options.rules.contexts = contexts;
                conforms(&options);
            }
        }
    }
}

#[test]
fn per_cpu_conforms_with_any_number_of_shards() {
    for allocator in [Allocator::Zsmalloc, Allocator::Fit] {
        for cpus in [1, 3, 256] {
            let options = options(allocator, PageSize::KIB4);
            conforms(&options.with_locking(Locking::PerCpu).with_cpus(cpus));
        }
    }
}

#[test]
fn designs_that_do_not_fit_are_refused_with_the_remedy() {
    let refused = |options: PoolOptions| create("refused", &options).unwrap_err();
    let zbud = PoolOptions::new(Allocator::Zbud);
    let wrong = refused(zbud.with_locking(Some(Locking::PerCpu)));
    assert_eq!(wrong.to_string(), "zbud has no lock design per-cpu (it has pool-lock)");
    let zsmalloc = PoolOptions::new(Allocator::Zsmalloc).with_reclaim(true);
    assert_eq!(zsmalloc.locking(), Locking::PoolLock);
    let wrong = refused(zsmalloc.with_locking(Some(Locking::PerCpu)));
    assert_eq!(wrong, ConfigError::ReclaimLocking(Locking::PerCpu));
    let fit = PoolOptions::new(Allocator::Fit).with_reclaim(true);
    assert_eq!(refused(fit).to_string(), "fit has no reclaim");
    let wrong = refused(PoolOptions::new(Allocator::Zsmalloc).with_cpus(Some(257)));
    assert_eq!(wrong.to_string(), "257 shards are not in 1 to 256");
}

#[test]
fn zsmalloc_conforms_in_every_variant() {
    for (chain, chooser) in [(4, Chooser::UsedPercent), (16, Chooser::LeastWaste)] {
        for grouping in [Grouping::Four, Grouping::Twelve] {
            for compaction in [Compaction::PerSource, Compaction::KeepTarget] {
                for commit in [Commit::Eager, Commit::Lazy] {
                    let default = KernelRules::default();
                    let rules =
                        KernelRules { chain, chooser, grouping, compaction, commit, ..default };
                    conforms(&options(Allocator::Zsmalloc, PageSize::KIB4).with_rules(rules));
                }
            }
        }
    }
}

/// Fails the n-th commit for every n up to where it does not matter any more: each error path of
/// page, record and cell tables is taken at some n.
#[test]
fn an_allocation_that_fails_changes_nothing() {
    let plain = Allocator::ALL.map(|allocator| options(allocator, PageSize::KIB4));
    let per_cpu = [Upkeep::Inline, Upkeep::Workers].map(|upkeep| per_cpu(2, upkeep));
    for options in plain.into_iter().chain(per_cpu) {
        for commits in 0..40 {
            let source = FailingPages::new(Arc::new(HeapPages), commits);
            let options = options.clone().with_source(Arc::new(source.clone()));
            let pool = create("failing", &options).expect("reserving commits nothing");
            let mut held = Vec::new();
            let error = loop {
                let len = held.len() * 37 % 3000 + 1;
                let before = (pool.stats().objects, pool.stats().pages);
                match pool.insert(&vec![held.len() as u8; len]) {
                    Ok(handle) => held.push(handle),
                    Err(error) => {
                        assert_eq!((pool.stats().objects, pool.stats().pages), before);
                        break error;
                    }
                }
            };
            assert!(matches!(error, AllocError::NoMemory(_)), "{error}");
            pool.check();
            for (n, &handle) in held.iter().enumerate() {
                assert!(pool.read(handle).unwrap().iter().all(|&byte| byte == n as u8));
            }
            source.allow(u32::MAX);
            assert!(pool.insert(&[1; 2999]).is_ok(), "memory is back");
            pool.check();
        }
    }
}

#[test]
fn a_model_survives_a_source_that_fails_at_random() {
    let plain = Allocator::ALL.map(|allocator| options(allocator, PageSize::KIB4));
    let per_cpu = [Upkeep::Inline, Upkeep::Workers].map(|upkeep| per_cpu(2, upkeep));
    for options in plain.into_iter().chain(per_cpu) {
        let source = FailingPages::new(Arc::new(HeapPages), 10);
        let shared: Arc<dyn PageSource> = Arc::new(source.clone());
        let options = options.with_source(shared);
        let pool = create("failing", &options).unwrap();
        let (mut model, mut most) = (Model::new(&*pool), 0);
        for (n, op) in Op::random(5, pool.len_max()).take(20_000).enumerate() {
            if n % 100 == 0 {
                source.allow((n / 100 % 7) as u32);
            }
            model.apply(&op);
            most = most.max(model.live());
        }
        assert!(most > 5, "{most} objects at most: the source failed too often to test much");
        model.finish();
    }
}

/// A kernel bug to avoid: two pools of different geometry sharing one huge-class size.
#[test]
fn pools_of_different_chains_have_their_own_huge_class() {
    let chain = |chain| {
        let rules = KernelRules { chain, ..KernelRules::default() };
        let options = options(Allocator::Zsmalloc, PageSize::KIB4).with_rules(rules);
        let pool = create("chain", &options).unwrap();
        (0..60).for_each(|_| assert!(pool.insert(&[1; 3400]).is_ok()));
        pool.stats().pages
    };
    assert_eq!(chain(4), PageCount(60), "3400 bytes are huge with a chain of 4");
    assert!(chain(8) < PageCount(55), "and not with a chain of 8");
    assert_eq!(chain(4), PageCount(60));
}

/// A kernel bug to avoid: putting back a zspage that compaction has already freed. Every class
/// is drained to its last zspage and refilled.
#[test]
fn compaction_of_classes_that_empty_completely_leaves_nothing_behind() {
    let pool = create("drain", &options(Allocator::Zsmalloc, PageSize::KIB4)).unwrap();
    for round in 0..3 {
        let held: Vec<_> =
            (1..=4096).step_by(8).map(|len| pool.insert(&vec![round; len]).unwrap()).collect();
        for (n, handle) in held.into_iter().enumerate() {
            pool.free(handle).unwrap();
            if n % 16 == 0 {
                pool.compact(u64::MAX);
            }
        }
        pool.check();
        assert_eq!(pool.stats().held_bytes(), pool.held_bytes());
        assert_eq!(pool.stats().pages, PageCount::ZERO);
    }
}

/// A kernel bug to avoid: an object can be evicted before its owner has published it. The hook
/// may meet a handle it does not know; refusing it must leave the object intact.
#[test]
fn an_unpublished_object_that_is_refused_stays() {
    for allocator in with_reclaim() {
        let options = options(allocator, PageSize::KIB4).with_reclaim(true);
        let pool = create("unpublished", &options).unwrap();
        let handle = pool.insert(b"not yet known to its owner").unwrap();
        let mut met = 0;
        let result = pool.reclaim(PageCount(1), &mut |unknown| {
            assert_eq!(unknown, handle);
            met += 1;
            Err(zfold_pool::Refused)
        });
        assert_eq!(result, Err(zfold_pool::ReclaimError::Refused));
        assert_eq!(met, 8, "eight tries, like the kernel");
        assert_eq!(&*pool.read(handle).unwrap(), b"not yet known to its owner");
        pool.free(handle).unwrap();
        pool.check();
    }
}

/// A panic in an evict hook must not leave the page out of use for ever.
#[test]
fn a_hook_that_panics_loses_nothing() {
    for allocator in with_reclaim() {
        let options = options(allocator, PageSize::KIB4).with_reclaim(true);
        let pool = create("panicking", &options).unwrap();
        let handle = pool.insert(b"kept").unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = pool.reclaim(PageCount(1), &mut |_| panic!("hook"));
        }));
        assert!(panicked.is_err());
        assert_eq!(&*pool.read(handle).unwrap(), b"kept");
        pool.free(handle).unwrap();
        pool.check();
        assert_eq!(pool.stats().pages, PageCount::ZERO);
    }
}
