//! What lock-free code synchronises with: the standard library, or loom's models of it when the
//! crate is built with `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{Condvar, Mutex, atomic},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, atomic},
    thread::yield_now,
};

/// A cell with loom's interface: access by pointer, within a closure.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

/// Times that a waiting thread looks before it yields its processor.
pub(crate) const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Integers of records that one thread changes at a time (whoever owns the record) while others
/// may look: relaxed atomics, so that looking is never a data race. They order nothing, and cost
/// what plain integers do.
macro_rules! plain {
    ($($name:ident, $atomic:ident, $int:ty;)*) => {$(
        #[derive(Debug, Default)]
        pub(crate) struct $name(std::sync::atomic::$atomic);

        impl $name {
            #[inline]
            pub(crate) fn get(&self) -> $int {
                self.0.load(std::sync::atomic::Ordering::Relaxed)
            }

            #[inline]
            pub(crate) fn set(&self, value: $int) {
                self.0.store(value, std::sync::atomic::Ordering::Relaxed);
            }
        }
    )*};
}

plain! {
    Plain8, AtomicU8, u8;
    Plain16, AtomicU16, u16;
    Plain32, AtomicU32, u32;
    Plain64, AtomicU64, u64;
}
