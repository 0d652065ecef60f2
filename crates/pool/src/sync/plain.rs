//! Integers that one thread changes at a time, while others may look.

/// Integers of records that one thread, the owner of the record, changes at a time, while others
/// may read them: relaxed atomics, so that looking is never a data race. They order nothing, and
/// cost what plain integers do.
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
