//! Properties of the store, against the model:
//! - any sequence of operations loads what was stored last, over every allocator, codec policy
//!   and limit, and all counters agree;
//! - several threads with their own keys do not disturb each other.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use zfold_pool::{Allocator, PageSize, PoolOptions, create};
use zfold_store::backing::MemoryBacking;
use zfold_store::conformance::{Model, Op};
use zfold_store::{BackingOptions, CodecKind, CodecSpec, Incompressible, Store, StoreOptions};
use zfold_testing::Random;
use zfold_testing::wait::at_once;

/// A store by a number, so that all variants come up.
fn variant(allocator: Allocator, number: u64) -> Store {
    let page_size = [PageSize::KIB4, PageSize::KIB16][number as usize & 1];
    let pool = create("model", &PoolOptions::new(allocator).with_page_size(page_size)).unwrap();
    let codec = [CodecKind::Lz4, CodecKind::Zstd, CodecKind::Page][(number as usize >> 1) % 3];
    let mut options = StoreOptions::new(3000, codec.into());
    options.key_header = number & 8 == 0;
    options.same_filled = true;
    options.limit_bytes = (number & 16 == 0).then_some(1 << 20);
    if number & 32 == 0 {
        options.incompressible = Incompressible::Reject;
    }
    if number & 64 == 0 {
        let backing = Arc::new(MemoryBacking::new(4 << 20));
        options.backing = Some(BackingOptions::new(backing));
    }
    if number & 256 == 0 {
        let strong: CodecSpec = "zstd:9".parse().unwrap();
        options.recompression = vec![strong.into()];
    }
    options.deduplicate = !options.key_header && number & 512 == 0;
    Store::new(pool, &options).unwrap()
}

/// Cases are few because each is long; failures are shown, not written to files.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn any_sequence_loads_what_was_stored_last(
        words in vec(any::<u64>(), 1..800),
        number in any::<u64>(),
    ) {
        for allocator in Allocator::ALL {
            let store = variant(allocator, number);
            let mut model = Model::new(&store, 0);
            words.iter().for_each(|&word| model.apply(&Op::from_word(word)));
            store.check();
            model.finish();
            prop_assert!(store.is_empty());
            store.check();
        }
    }
}

#[test]
fn threads_with_their_own_keys_do_not_disturb_each_other() {
    for (number, allocator) in (0..).step_by(5).zip(Allocator::ALL) {
        let store = variant(allocator, number);
        at_once(0..4_u64, |thread| {
            let mut model = Model::new(&store, thread * 600);
            let mut random = Random::new(thread);
            for _ in 0..5000 {
                model.apply(&Op::from_word(random.word()));
            }
            model.finish();
        });
        store.check();
        assert!(store.is_empty());
    }
}
