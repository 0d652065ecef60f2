//! The life of a guest: threads that read, write and discard pages for a while, know what each page
//! must hold, and measure how long they wait.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::{PAGE, page};
use super::Memory;

const THREADS: u64 = 2;

/// Wait between two accesses, so that there is something left to ask for.
const BREATH: Duration = Duration::from_micros(60);

/// What a page must hold.
#[derive(Clone, Copy, Default)]
struct Known {
    /// It was given up since it was restored.
    zeros: bool,
    /// What was written to its first word.
    word: Option<u64>,
}

impl Known {
    fn bytes(self, seed: u64, number: u64) -> Vec<u8> {
        let mut bytes = if self.zeros { vec![0; PAGE] } else { page(seed, number) };
        if let Some(word) = self.word {
            bytes[..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// Returns `right`, the longest wait in microseconds and the number of accesses; or what is wrong.
pub(super) fn live(memory: Memory, seed: u64, time: Duration) -> String {
    let (longest, accesses) = (AtomicU64::new(0), AtomicU64::new(0));
    let wrong = Mutex::new(None);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (longest, accesses, wrong) = (&longest, &accesses, &wrong);
            scope.spawn(move || {
                let pages = memory.pages / THREADS;
                let mut known = vec![Known::default(); pages as usize];
                let mut state = seed * 1000 + thread + u64::from(std::process::id());
                let until = Instant::now() + time;
                let check = |of: u64, known: Known| {
                    let number = of * THREADS + thread;
                    if memory.copy(number) != known.bytes(seed, number) {
                        *wrong.lock().expect("no panic") = Some(number);
                    }
                };
                while Instant::now() < until {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let of = (state >> 33) % pages;
                    let number = of * THREADS + thread;
                    let began = Instant::now();
                    match state >> 20 & 7 {
                        0 => {
                            memory.discard(number, 1);
                            known[of as usize] = Known { zeros: true, word: None };
                        }
                        1 | 2 => {
                            memory.write(number, state);
                            known[of as usize].word = Some(state);
                        }
                        _ => check(of, known[of as usize]),
                    }
                    longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                    accesses.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(BREATH);
                }
                (0..pages).for_each(|of| check(of, known[of as usize]));
            });
        }
    });
    match wrong.into_inner().expect("no panic") {
        None => format!("right {} {}", longest.into_inner(), accesses.into_inner()),
        Some(number) => format!("page {number} is wrong"),
    }
}
