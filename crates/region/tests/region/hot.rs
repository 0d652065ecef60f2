//! Pages that are needed often stay.

use zfold_region::Region;
use zfold_testing::Random;

use super::{MIB, PAGE, fill, small};

/// Four of five touches go to a fifth of the pages, and a quarter of all fits.
#[test]
fn pages_that_come_back_soon_stay() {
    let mut region = Region::new(64 * MIB, &small(16 * MIB)).unwrap();
    (0..).zip(region.as_mut_slice::<u8>().chunks_mut(PAGE)).for_each(|(n, page)| fill(page, n, 1));
    let mut order: Vec<usize> = (0..region.len() / PAGE).collect();
    let mut random = Random::new(1);
    (1..order.len()).rev().for_each(|at| order.swap(at, random.index(at + 1)));
    let mut touch = |times: usize| {
        let before = region.stats();
        for _ in 0..times {
            let hot = if random.once_in(5) { order.len() } else { order.len() / 5 };
            let page = order[random.index(hot)];
            let word = &mut region.as_mut_slice::<u8>()[page * PAGE + PAGE - 1];
            assert_eq!(*word, ((page as u64) << 20 >> 56) as u8);
        }
        let after = region.stats();
        let brought = after.loads_total + after.refaults_total + after.prefetched_total
            - (before.loads_total + before.refaults_total + before.prefetched_total);
        brought as f64 / times as f64
    };
    let (first, then) = (touch(100_000), touch(100_000));
    println!("pages brought back for each touch: {first:.3}, then {then:.3}");
    // As simulated, 0.32 where all leave in turn, 0.25 under the least recently used rule.
    assert!(then < 0.28, "{then}");
}
