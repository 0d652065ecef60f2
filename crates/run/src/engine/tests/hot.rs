//! Pages that are needed often stay.

use zfold_testing::random::Random;

use super::*;

/// Four of five touches go to a fifth of the pages, and a quarter of all fits.
#[test]
fn pages_that_come_back_soon_stay() {
    let Some(world) = World::new(8 * MIB) else { return };
    let memory = world.map(32 * MIB);
    let mut order: Vec<usize> = pages(&memory).collect();
    order.iter().for_each(|&page| fill(page, 1));
    let mut random = Random::new(1);
    (1..order.len()).rev().for_each(|at| order.swap(at, random.index(at + 1)));
    let mut touch = |times: usize| {
        let before = world.stats();
        for _ in 0..times {
            let hot = if random.once_in(5) { order.len() } else { order.len() / 5 };
            verify(order[random.index(hot)], 1);
        }
        let after = world.stats();
        let brought = |of: &Figures| of.loads_total + of.refaults_total + of.prefetched_total;
        (brought(&after) - brought(&before)) as f64 / times as f64
    };
    let (first, then) = (touch(50_000), touch(50_000));
    println!("pages brought back for each touch: {first:.3}, then {then:.3}");
    // As simulated, 0.35 where each is spared once, 0.25 under the least recently used rule, 0.18
    // under the policy without marks. A run has a little less room than its limit:
    // 0.161 to 0.167 with six seeds where accesses are seen, and 0.194 where they are not.
    assert!(then < if sees_accesses() { 0.18 } else { 0.28 }, "{then}");
}
