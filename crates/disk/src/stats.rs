//! What a device has served.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a device; each line of CPU cache is shared by all threads, which a
        /// request of some microseconds does not notice.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        /// What a device has served since it was made. All counters only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DiskStats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> DiskStats {
                DiskStats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Read requests.
    reads_total,
    /// Bytes read.
    read_bytes_total,
    /// Write requests.
    writes_total,
    /// Bytes written.
    written_bytes_total,
    /// Discard requests.
    discards_total,
    /// Bytes discarded.
    discarded_bytes_total,
    /// Write-zeroes requests.
    write_zeroes_total,
    /// Flush requests.
    flushes_total,
    /// Read requests that failed.
    failed_reads_total,
    /// Requests that write, zero, discard or flush, and failed.
    failed_writes_total,
    /// Pages whose memory a discard or write-zeroes freed (zram's `notify_free`).
    notify_free_total,
}

/// A counter that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: a statistic.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
