//! Four threads, each with every fourth page, that use random pages as fast as they can; what they
//! read must be what they know.

use std::sync::atomic::{AtomicU64, Ordering};

use zfold_testing::Random;

use super::super::first_word;
use super::Memory;

const THREADS: u64 = 4;

/// Reads, writes and discards; all pages are of the image of `image` at first.
pub(super) fn hammer(memory: Memory, image: u64, rounds: u64, seed: u64) -> String {
    all(memory, |thread, wrong| {
        let mut known: Vec<u64> =
            (0..memory.pages).map(|number| first_word(image, number)).collect();
        let mut random = Random::new(seed * THREADS + thread);
        for _ in 0..rounds {
            let number = random.below(memory.pages / THREADS) * THREADS + thread;
            match random.below(8) {
                0 => {
                    memory.discard(number, 1);
                    known[number as usize] = 0;
                }
                1 | 2 => {
                    let word = random.word();
                    memory.write(number, word);
                    known[number as usize] = word;
                }
                _ if memory.read(number) != known[number as usize] => {
                    wrong.store(number, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    })
}

/// Has each thread work; returns `right`, or a page in which one has found something else.
fn all(memory: Memory, work: impl Fn(u64, &AtomicU64) + Sync) -> String {
    assert!(memory.pages.is_multiple_of(THREADS));
    let wrong = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (work, wrong) = (&work, &wrong);
            scope.spawn(move || work(thread, wrong));
        }
    });
    match wrong.into_inner() {
        u64::MAX => "right".to_owned(),
        number => format!("page {number} is wrong"),
    }
}
