//! Locks of the standard library that a panic does not close: for what is whole at every step that
//! can panic. Where that is not so, use [`std::sync::Mutex`], which says that a thread panicked.
//!
//! The type is that of the standard library in models, too: loom's are in `sync`.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex that can be locked after a panic, too.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Returns a lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread holds the lock, and returns the value; it is free again when the
    /// guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        sound(self.0.lock())
    }

    /// Returns the value if no other thread holds the lock.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Returns the guard of a lock or of a wait, also after a panic.
pub fn sound<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_lock_open_and_the_value_as_it_was() {
        let lock = Lock::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                *lock.lock() += 1;
                let _held = lock.lock();
                panic!("on purpose");
            });
            thread.join()
        });
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 2);
        let held = lock.try_lock();
        assert!(held.is_some() && lock.try_lock().is_none());
    }
}
