//! Threads that start together.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::experiment::error::Error;

/// Runs `prepare` and then `work` on each of `threads` threads, told their number from 0; none
/// begins its work before all are prepared. Returns what `work` returned, by number, and the time
/// from the first beginning to the last end.
///
/// # Errors
/// That of the thread of the lowest number that fails; the others run to their end.
///
/// # Panics
/// If a thread panics or cannot be started.
pub(crate) fn together<P, R: Send>(
    threads: u32,
    prepare: impl Fn(u32) -> Result<P, Error> + Sync,
    work: impl Fn(u32, P) -> Result<R, Error> + Sync,
) -> Result<(Vec<R>, Duration), Error> {
    /// Waits for the others when dropped, which a panic does, too.
    struct Ready<'a>(&'a Barrier);
    impl Drop for Ready<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let barrier = Barrier::new(threads as usize);
    let run = |number| {
        let ready = Ready(&barrier);
        let prepared = prepare(number);
        drop(ready);
        let start = Instant::now();
        let result = prepared.and_then(|prepared| work(number, prepared));
        (start, Instant::now(), result)
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let start = ended.iter().map(|(start, ..)| *start).min();
    let end = ended.iter().map(|(_, end, _)| *end).max();
    let elapsed = end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start);
    let results: Result<Vec<R>, Error> = ended.into_iter().map(|(.., result)| result).collect();
    Ok((results?, elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn threads_begin_when_all_are_prepared() {
        let prepared = Mutex::new(0);
        let prepare = |number| {
            *prepared.lock().unwrap() += 1;
            Ok(number * 10)
        };
        let work = |number: u32, ten: u32| {
            assert_eq!(*prepared.lock().unwrap(), 3);
            std::thread::sleep(Duration::from_millis(5));
            Ok(number + ten)
        };
        let (results, elapsed) = together(3, prepare, work).unwrap();
        assert_eq!(results, [0, 11, 22]);
        assert!(elapsed >= Duration::from_millis(5));
        let fails = |number| match number {
            1 => Err(Error::Other("one fails".to_owned())),
            _ => Ok(()),
        };
        let error = together(3, fails, |_, ()| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "one fails");
    }

    #[test]
    #[should_panic(expected = "in preparation")]
    fn a_panic_before_the_start_ends_all_threads() {
        let prepare = |number| if number == 1 { panic!("in preparation") } else { Ok(()) };
        let _ = together(2, prepare, |_, ()| Ok(()));
    }
}
