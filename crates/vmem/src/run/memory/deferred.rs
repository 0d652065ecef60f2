//! Frees what nobody names any more, a little later and on a thread of its own: a thread that gives
//! memory up, or gets a page back, does not wait until the store has freed what it held.
//!
//! Where keys lie, the thread was called and takes once more: it is not called again before it has
//! found none. Both sides decide that under one lock.

use std::io;
use std::mem::{replace, take};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::managed::lock;
use super::shared::Shared;
use crate::run::core::pages::Key;

/// Keys that are left for later; whoever has more frees them himself.
const DEFERRED_MAX: usize = 1024;
/// For how long they may lie, so that the thread is not woken for a few.
const WHILE: Duration = Duration::from_millis(1);
/// How long the thread waits to be called.
const IDLE: Duration = Duration::from_secs(3600);

/// Keys that nobody uses, and that still hold pages.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    keys: Vec<Key>,
    /// The thread was called, and has not found them empty since.
    called: bool,
}

impl Deferred {
    /// Adds keys; returns whether the thread is to be called.
    fn put(&mut self, keys: &[Key]) -> bool {
        self.keys.extend_from_slice(keys);
        !self.keys.is_empty() && !replace(&mut self.called, true)
    }

    /// Takes all keys; who calls takes again unless there are none.
    fn take(&mut self) -> Vec<Key> {
        self.called = !self.keys.is_empty();
        take(&mut self.keys)
    }
}

impl Shared {
    /// Frees keys that nobody uses, soon.
    pub(super) fn free_later(&self, keys: &[Key]) {
        let mut deferred = lock(&self.deferred);
        let calls = deferred.put(keys);
        let many =
            if deferred.keys.len() > DEFERRED_MAX { take(&mut deferred.keys) } else { vec![] };
        drop(deferred);
        if calls {
            self.freer.call();
        }
        self.free(&many);
    }

    /// Frees what is left for later; returns whether there was anything.
    pub(super) fn free_deferred(&self) -> bool {
        let keys = take(&mut lock(&self.deferred).keys);
        self.free(&keys);
        !keys.is_empty()
    }
}

/// Starts the thread.
///
/// # Errors
/// The system starts none.
pub(super) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let run = move || {
        while !shared.freer.wait(IDLE) {
            loop {
                thread::sleep(WHILE);
                let keys = lock(&shared.deferred).take();
                if keys.is_empty() {
                    break;
                }
                shared.free(&keys);
            }
        }
    };
    threads.push(thread::Builder::new().name("freer".to_owned()).spawn(run)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many keys are freed of one in each of `puts` puts. The thread, while it is
    /// called, takes behind a put for which `turns` has a bit, once or twice.
    fn freed(puts: u32, turns: u32, calls_each_time: bool) -> usize {
        let mut deferred = Deferred::default();
        let (mut runs, mut freed) = (false, 0);
        for turn in 0..puts {
            let calls = deferred.put(&[turn]);
            // The twin forgets that keys may come after none were found.
            runs |= if calls_each_time { calls } else { turn == 0 };
            if runs && turns >> turn & 1 == 1 {
                for _ in 0..=(turns >> (turn + puts) & 1) {
                    let keys = deferred.take();
                    runs = !keys.is_empty();
                    freed += keys.len();
                }
            }
        }
        while runs {
            let keys = deferred.take();
            runs = !keys.is_empty();
            freed += keys.len();
        }
        freed
    }

    #[test]
    fn all_is_freed_whenever_the_thread_runs() {
        const PUTS: u32 = 6;
        let all = 0..1 << (2 * PUTS);
        assert!(all.clone().all(|turns| freed(PUTS, turns, true) == PUTS as usize));
        assert!(all.into_iter().any(|turns| freed(PUTS, turns, false) < PUTS as usize));
    }
}
