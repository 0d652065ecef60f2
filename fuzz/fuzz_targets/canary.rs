//! Must fail: it claims that no pool ever moves an object while others are alive. A fuzzing
//! set-up that does not refute this within seconds would find nothing else either.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zfold_fuzz::{Subject, words};
use zfold_testing::pool::{Model, Op};

fuzz_target!(|data: &[u8]| {
    let Some((subject, bytes)) = Subject::from_bytes(data) else { return };
    let pool = &*subject.pool;
    let mut model = Model::new(pool);
    for word in words(bytes) {
        model.apply(&Op::from_word(word, pool.len_max()));
        assert_eq!(pool.stats().objects_moved_total, 0, "canary: an object moved");
    }
});
