//! How fast threads go while nothing else takes their processors.
//!
//! A run is cut in windows of a quarter of a millisecond. The scheduler counts how often each
//! thread was put on a processor; a window in which that happened to one of them is of the other
//! processes of the machine and does not count. A run ends when enough windows count, or takes
//! the best that it has.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::experiment::Error;

const WINDOW: Duration = Duration::from_micros(250);
/// Operations between two looks at the clock.
const BATCH: u32 = 8;
/// Time in which all threads are started and replace most of what they have in the pool, so that
/// per-CPU designs have it where the threads run now.
const START: Duration = Duration::from_millis(6);
/// A run lasts at most this many times the windows that it wants.
const PATIENCE: usize = 20;

/// Medians over the undisturbed windows of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Operations of all threads in a second.
    pub(super) per_second: f64,
    /// Mean of the values that the operations returned.
    pub(super) mean: f64,
    /// Whether there was no undisturbed window, so that these are of disturbed ones.
    pub(super) disturbed: bool,
}

/// The work of one thread, or of all, in one window.
#[derive(Clone, Copy, Default)]
struct Window {
    operations: u64,
    per_second: f64,
    /// Of what the operations returned.
    sum: f64,
    /// Times that a thread was put on a processor.
    switches: u64,
    /// Threads that went through the window.
    threads: usize,
}

impl Window {
    /// Returns what one thread did in `time`.
    fn over(self, time: Duration, switches: u64) -> Self {
        let per_second = self.operations as f64 / time.as_secs_f64();
        Self { per_second, switches, threads: 1, ..self }
    }

    fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            per_second: self.per_second + other.per_second,
            sum: self.sum + other.sum,
            switches: self.switches + other.switches,
            threads: self.threads + other.threads,
        }
    }
}

/// One run, shared by its threads.
struct Run {
    start: Instant,
    workers: usize,
    wanted: usize,
    /// For each window, how many threads went through it undisturbed.
    through: Vec<AtomicUsize>,
    undisturbed: AtomicUsize,
    stop: AtomicBool,
}

/// Lets each of `workers` do `operation` again and again on a thread of its own, until `wanted`
/// windows were undisturbed. The value that an operation returns is averaged in [`Pace::mean`]. It
/// gets a flag that says when to stop waiting for other workers.
///
/// # Errors
/// The first error of an operation, or that of the system, which could not start a thread.
///
/// # Panics
/// If an operation does.
pub(super) fn pace<W: Send>(
    workers: &mut [W],
    wanted: usize,
    operation: impl Fn(&mut W, &AtomicBool) -> Result<f64, Error> + Sync,
) -> Result<Pace, Error> {
    let operation = &operation;
    let run = &Run {
        start: Instant::now() + START,
        workers: workers.len(),
        wanted,
        through: (0..wanted * PATIENCE).map(|_| AtomicUsize::new(0)).collect(),
        undisturbed: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
    };
    let threads = std::thread::scope(|scope| {
        let spawn = |worker| Builder::new().spawn_scoped(scope, || run.watch(worker, operation));
        let threads: Vec<_> = workers.iter_mut().map(spawn).collect::<Result<_, _>>()?;
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    })?;
    Ok(run.summary(&threads))
}

impl Run {
    /// Returns what `worker` does in each window, and in the whole run.
    fn watch<W>(
        &self,
        worker: &mut W,
        operation: &impl Fn(&mut W, &AtomicBool) -> Result<f64, Error>,
    ) -> Result<Vec<Window>, Error> {
        let _stop = StopAtEnd(&self.stop);
        let schedule = Schedule::of_this_thread();
        let mut windows = vec![Window::default(); self.through.len()];
        let (mut whole, began) = (Window::default(), Instant::now());
        let (mut current, mut begin) = (Window::default(), began);
        let (mut index, mut switches) = (None, 0);
        // Relaxed, here and below: counts and a request; nothing else is passed on by them.
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                current.sum += operation(worker, &self.stop)?;
                current.operations += 1;
            }
            let time = Instant::now();
            let Some(since) = time.checked_duration_since(self.start) else { continue };
            let next = (since.as_nanos() / WINDOW.as_nanos()) as usize;
            if index == Some(next) {
                continue;
            }
            let switched = schedule.switches();
            whole = whole.and(current);
            if let Some(window) = index.filter(|last| last + 1 == next) {
                windows[window] = current.over(time - begin, switched - switches);
                self.end_window(window, windows[window].switches);
            }
            if next >= windows.len() {
                break;
            }
            (index, begin, switches) = (Some(next), Instant::now(), switched);
            current = Window::default();
        }
        windows.push(whole.and(current).over(began.elapsed(), 1));
        Ok(windows)
    }

    /// Counts the end of a window in one thread; stops all when enough were undisturbed.
    fn end_window(&self, index: usize, switches: u64) {
        let through = &self.through[index];
        if switches == 0
            && through.fetch_add(1, Ordering::Relaxed) + 1 == self.workers
            && self.undisturbed.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted
        {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the medians over the wanted windows, those that were disturbed least; over the whole
    /// run if no window saw all threads.
    fn summary(&self, threads: &[Vec<Window>]) -> Pace {
        let together = |index: usize| {
            let all = threads.iter().map(|windows| windows[index]);
            all.fold(Window::default(), Window::and)
        };
        let complete = |window: &Window| window.threads == self.workers;
        let mut windows: Vec<Window> =
            (0..self.through.len()).map(together).filter(complete).collect();
        windows.sort_by_key(|window| window.switches);
        windows.truncate(self.wanted);
        if windows.is_empty() {
            windows.push(together(self.through.len()));
        }
        Pace {
            per_second: median(windows.iter().map(|window| window.per_second)),
            mean: median(windows.iter().map(|window| window.sum / window.operations.max(1) as f64)),
            disturbed: windows.iter().all(|window| window.switches > 0),
        }
    }
}

/// Lets the other threads go when one ends, also by an error or a panic.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The scheduler's counts for one thread.
pub(super) struct Schedule(Option<File>);

impl Schedule {
    pub(super) fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Returns how often the thread was put on a processor; 0 if the system does not report it.
    pub(super) fn switches(&self) -> u64 {
        let mut text = [0; 64];
        let read = |file: &File| file.read_at(&mut text, 0).ok();
        let len = self.0.as_ref().and_then(read).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]);
        text.split_whitespace().nth(2).and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// Returns the numbers of those of `runs` that were not disturbed, of all if there is none.
pub(super) fn readings(runs: impl Iterator<Item = Pace>, number: impl Fn(Pace) -> f64) -> Vec<f64> {
    let (disturbed, undisturbed): (Vec<_>, Vec<_>) = runs.partition(|run| run.disturbed);
    let of = if undisturbed.is_empty() { disturbed } else { undisturbed };
    of.into_iter().map(number).collect()
}

/// Returns the middle one of `values`.
///
/// # Panics
/// If there is none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_are_counted() {
        let sleep = |value: &mut f64, _: &AtomicBool| {
            let end = Instant::now() + Duration::from_micros(10);
            while Instant::now() < end {}
            Ok(*value)
        };
        let one = pace(&mut [3.0], 8, sleep).expect("a thread");
        assert!(one.per_second > 0.0 && one.per_second <= 100_000.0, "{one:?}");
        assert_eq!(one.mean, 3.0);
        let two = pace(&mut [3.0, 3.0], 8, sleep).expect("two threads");
        assert!(two.per_second > 0.0 && two.per_second <= 200_000.0, "{two:?}");
    }

    #[test]
    fn disturbed_runs_count_only_if_all_are() {
        let run = |per_second, disturbed| Pace { per_second, mean: 0.0, disturbed };
        let of = |runs: [Pace; 3]| readings(runs.into_iter(), |run| run.per_second);
        assert_eq!(of([run(1.0, true), run(2.0, false), run(3.0, false)]), [2.0, 3.0]);
        assert_eq!(of([run(1.0, true), run(2.0, true), run(3.0, true)]), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn an_error_ends_the_run_of_all() {
        let fail = |me: &mut u32, stop: &AtomicBool| {
            if *me == 0 {
                return Err(Error::Other("over".to_owned()));
            }
            while !stop.load(Ordering::Relaxed) {}
            Ok(0.0)
        };
        let error = pace(&mut [0, 1], 1, fail).expect_err("the worker's error");
        assert_eq!(error.to_string(), "over");
    }

    #[test]
    fn a_thread_that_sleeps_is_switched() {
        let schedule = Schedule::of_this_thread();
        let before = schedule.switches();
        std::thread::sleep(Duration::from_millis(1));
        assert!(schedule.0.is_none() || schedule.switches() > before);
    }
}
