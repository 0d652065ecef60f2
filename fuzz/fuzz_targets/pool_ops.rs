//! Any sequence of operations on any pool: the bytes that were written come back, wrong use is
//! refused, and so are stale, forged and foreign handles, and every invariant holds, also when the
//! memory runs out in between.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zfold_fuzz::{OPS_PER_CHECK, Subject, words};
use zfold_pool::{Allocator, PoolOptions, create};
use zfold_testing::pool::{Model, Op};

fuzz_target!(|data: &[u8]| {
    let Some((subject, bytes)) = Subject::from_bytes(data) else { return };
    let pool = &*subject.pool;
    let mut model = Model::new(pool);
    let allocator = Allocator::ALL[data[0] as usize / 16 % Allocator::ALL.len()];
    let foreign = create("foreign", &PoolOptions::new(allocator)).expect("a pool");
    for (n, word) in words(bytes).enumerate() {
        model.apply(&Op::from_word(word, pool.len_max()));
        if n % OPS_PER_CHECK == OPS_PER_CHECK - 1 {
            model.use_foreign(foreign.insert(&word.to_le_bytes()).expect("memory for an object"));
            pool.check();
            subject.memory.ration(word);
        }
    }
    model.finish();
    assert_eq!(pool.stats().objects, 0, "all objects were freed");
    assert_eq!(pool.stats().pages.0, 0, "an empty pool holds no page");
});
