//! Properties of every allocator, against the model:
//! - any sequence of operations gives the bytes that were written, refuses what must be refused,
//!   and keeps every invariant after each operation;
//! - a long random run does, too. `ZFOLD_TEST_OPS` sets its length per allocator (default
//!   300,000 operations); the seed is printed with it.

use proptest::collection::vec;
use proptest::prelude::*;
use zfold_pool::{
    Allocator, Commit, Compaction, Grouping, KernelRules, Locking, PageSize, PoolOptions, Upkeep,
    create,
};
use zfold_testing::pool::{Model, Op};

/// Options of a pool by a number, so that all variants come up.
fn variant(allocator: Allocator, number: u64) -> PoolOptions {
    let bit = |bit: u64| number & bit == 0;
    let rules = KernelRules {
        chain: 4 + (number >> 2) as u32 % 13,
        grouping: if bit(1) { Grouping::Four } else { Grouping::Twelve },
        compaction: if bit(2) { Compaction::PerSource } else { Compaction::KeepTarget },
        commit: if bit(8) { Commit::Eager } else { Commit::Lazy },
        ..KernelRules::default()
    };
    PoolOptions::new(allocator)
        .with_page_size([PageSize::KIB4, PageSize::KIB16, PageSize::KIB64][number as usize % 3])
        .with_rules(rules)
        .with_reclaim(bit(4) && allocator.has_reclaim())
        .with_arena_bytes(64 << 20)
}

/// z3fold with a shard for every CPU, by a number.
fn per_cpu(number: u64) -> PoolOptions {
    let mut options = variant(Allocator::Z3fold, number)
        .with_locking(Locking::PerCpu)
        .with_cpus(1 + (number >> 4) as usize % 5)
        .with_reclaim(false);
    options.rules.upkeep = if number & 8 == 0 { Upkeep::Inline } else { Upkeep::Workers };
    options
}

/// Cases are few because each is long; failures are shown, not written to files.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn short_sequences_keep_every_invariant(
        words in vec(any::<u64>(), 1..150),
        number in any::<u64>(),
    ) {
        let plain = Allocator::ALL.map(|allocator| variant(allocator, number));
        for options in plain.into_iter().chain([per_cpu(number)]) {
            let pool = create("short", &options).unwrap();
            let mut model = Model::new(&*pool);
            for &word in &words {
                model.apply(&Op::from_word(word, pool.len_max()));
                pool.check();
            }
            model.finish();
        }
    }
}

#[test]
fn long_runs_match_the_model() {
    let ops = std::env::var("ZFOLD_TEST_OPS").map_or(300_000, |ops| ops.parse().expect("a number"));
    let plain = Allocator::ALL
        .map(|allocator| PoolOptions::new(allocator).with_reclaim(allocator.has_reclaim()));
    // Two shards, inline and with workers.
    let all = plain.into_iter().chain([16, 16 | 8].map(per_cpu));
    for (seed, options) in (0..).zip(all) {
        let (allocator, locking, upkeep) =
            (options.allocator, options.locking(), options.rules.upkeep);
        println!("{allocator}, {locking}, {upkeep:?}: {ops} operations, seed {seed}");
        let pool = create("long", &options).unwrap();
        let mut model = Model::new(&*pool);
        for (n, op) in Op::random(seed, pool.len_max()).take(ops).enumerate() {
            model.apply(&op);
            if n % 10_000 == 0 {
                pool.check();
            }
        }
        model.finish();
    }
}
