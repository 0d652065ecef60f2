//! Locks that outlast a panic.

use std::sync::{Mutex, MutexGuard};

/// Locks, also after a panic: whatever these locks guard is sound between any two statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
