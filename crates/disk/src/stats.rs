//! The requests that a device has served: its figures, each declared once.

use zfold_figures::{FIELD, View, figures, metric, state};

/// Titles of the tables in which people see figures of disks.
pub mod table {
    /// Pages by what they are.
    pub const PAGES: &str = "pages";
    /// Requests.
    pub const SERVED: &str = "served";
    /// The failures.
    pub const FAILED: &str = "refused or failed";
}

use table::{FAILED, PAGES, SERVED};

figures! {
    /// The requests that a device has served since it was created. All counters only grow.
    #[non_exhaustive]
    pub struct DiskStats;
    /// The counters of a device; each line of CPU cache is shared by all threads, which a
    /// request of some microseconds does not notice.
    pub(crate) struct Counters;

    counter reads_total: Count, "read requests",
        [state(SERVED).row("reads").within("device"), metric("reads_total"), View::Rate];
    counter read_bytes_total: Bytes, "bytes read",
        [state(SERVED).row("read").within("device"), metric("read_bytes_total"), View::Rate];
    counter writes_total: Count, "write requests",
        [state(SERVED).row("writes").within("device"), metric("writes_total"), View::Rate];
    counter written_bytes_total: Bytes, "bytes written",
        [state(SERVED).row("written").within("device"), metric("written_bytes_total"), View::Rate];
    counter discards_total: Count, "discard requests",
        [state(SERVED).row("discards").within("device"), metric("discards_total")];
    counter discarded_bytes_total: Bytes, "bytes discarded", [FIELD.within("device")];
    counter write_zeroes_total: Count, "write-zeroes requests",
        [state(SERVED).row("write_zeroes").within("device"), metric("write_zeroes_total")];
    counter flushes_total: Count, "flush requests",
        [state(SERVED).row("flushes").within("device"), metric("flushes_total")];
    counter failed_reads_total: Count, "read requests that failed",
        [state(FAILED).named("failed_reads").within("io_stat"), metric("failed_reads_total")];
    counter failed_writes_total: Count,
        "requests to write, zero, discard or flush that failed, refused ones included",
        [state(FAILED).named("failed_writes").within("io_stat"), metric("failed_writes_total")];
    counter notify_free_total: Count, "pages that a discard or write-zeroes freed",
        [state(PAGES).named("notify_free").within("io_stat")];
}
