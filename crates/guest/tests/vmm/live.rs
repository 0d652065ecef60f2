//! The life of a guest: threads that read, write and discard pages for a while, know what each page
//! must hold, and measure how long they wait.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zfold_testing::Random;
use zfold_testing::wait::at_once;

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
    /// Returns the whole page, of which `before` is what it had at first.
    fn bytes(self, before: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        let mut bytes = if self.zeros { vec![0; PAGE] } else { before() };
        if let Some(word) = self.word {
            bytes[..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// How a guest lives.
pub(super) struct Life {
    pub(super) seed: u64,
    pub(super) time: Duration,
    /// What it has at first; without, it is the image of the seed.
    pub(super) from: Option<PathBuf>,
    /// Where what it has at the end is left; then it does not look at all of it.
    pub(super) to: Option<PathBuf>,
}

impl Life {
    fn before(&self, from: Option<&File>, number: u64) -> Vec<u8> {
        let Some(file) = from else { return page(self.seed, number) };
        let mut bytes = vec![0; PAGE];
        file.read_exact_at(&mut bytes, number * PAGE as u64).expect("as long as the memory");
        bytes
    }
}

/// Returns `right`, the longest wait in microseconds and the number of accesses; or what is wrong.
pub(super) fn live(memory: Memory, life: &Life) -> String {
    let from = life.from.as_ref().map(|path| File::open(path).expect("a file"));
    let to = life.to.as_ref().map(|path| File::create(path).expect("a file"));
    let (from, to) = (from.as_ref(), to.as_ref());
    let (longest, accesses) = (AtomicU64::new(0), AtomicU64::new(0));
    let wrong = Mutex::new(None);
    at_once(0..THREADS, |thread| {
        let pages = memory.pages / THREADS;
        let mut known = vec![Known::default(); pages as usize];
        let mut random = Random::new(life.seed * 1000 + thread + u64::from(std::process::id()));
        let until = Instant::now() + life.time;
        let right = |of: u64, known: Known| {
            let number = of * THREADS + thread;
            (number, known.bytes(|| life.before(from, number)))
        };
        let check = |of: u64, known: Known| {
            let (number, right) = right(of, known);
            if memory.copy(number) != right {
                *wrong.lock().expect("no panic") = Some(number);
            }
        };
        while Instant::now() < until {
            let of = random.below(pages);
            let number = of * THREADS + thread;
            let began = Instant::now();
            match random.below(8) {
                0 => {
                    memory.discard(number, 1);
                    known[of as usize] = Known { zeros: true, word: None };
                }
                1 | 2 => {
                    let word = random.word();
                    memory.write(number, word);
                    known[of as usize].word = Some(word);
                }
                _ => check(of, known[of as usize]),
            }
            longest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            accesses.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(BREATH);
        }
        for of in 0..pages {
            let Some(to) = to else {
                check(of, known[of as usize]);
                continue;
            };
            let (number, right) = right(of, known[of as usize]);
            to.write_all_at(&right, number * PAGE as u64).expect("written");
        }
    });
    match wrong.into_inner().expect("no panic") {
        None => format!("right {} {}", longest.into_inner(), accesses.into_inner()),
        Some(number) => format!("page {number} is wrong"),
    }
}
