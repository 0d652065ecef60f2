//! What a device has served: its figures, each declared once.

use zfold_figures::{View, figures, metric, state};

/// Titles of the tables in which people see figures of disks.
pub mod table {
    /// Pages by what they are.
    pub const PAGES: &str = "pages";
    /// Requests.
    pub const SERVED: &str = "served";
    /// What went wrong.
    pub const FAILED: &str = "refused or failed";
}

use table::{FAILED, PAGES, SERVED};

figures! {
    /// What a device has served since it was made. All counters only grow.
    #[non_exhaustive]
    pub struct DiskStats;
    /// The counters of a device; each line of CPU cache is shared by all threads, which a
    /// request of some microseconds does not notice.
    pub(crate) struct Counters;

    counter reads_total: Count, "read requests",
        [state(SERVED, "reads").named("device.reads_total"), metric("reads_total"), View::Rate];
    counter read_bytes_total: Bytes, "bytes read",
        [state(SERVED, "read").named("device.read_bytes_total"), metric("read_bytes_total"),
         View::Rate];
    counter writes_total: Count, "write requests",
        [state(SERVED, "writes").named("device.writes_total"), metric("writes_total"), View::Rate];
    counter written_bytes_total: Bytes, "bytes written",
        [state(SERVED, "written").named("device.written_bytes_total"),
         metric("written_bytes_total"), View::Rate];
    counter discards_total: Count, "discard requests",
        [state(SERVED, "discards").named("device.discards_total"), metric("discards_total")];
    counter discarded_bytes_total: Bytes, "bytes discarded",
        [state("", "").named("device.discarded_bytes_total")];
    counter write_zeroes_total: Count, "write-zeroes requests",
        [state(SERVED, "write_zeroes").named("device.write_zeroes_total"),
         metric("write_zeroes_total")];
    counter flushes_total: Count, "flush requests",
        [state(SERVED, "flushes").named("device.flushes_total"), metric("flushes_total")];
    counter failed_reads_total: Count, "read requests that failed",
        [state(FAILED, "failed_reads").named("io_stat.failed_reads"),
         metric("failed_reads_total")];
    counter failed_writes_total: Count,
        "requests to write, zero, discard or flush that failed, refused ones included",
        [state(FAILED, "failed_writes").named("io_stat.failed_writes"),
         metric("failed_writes_total")];
    total invalid_io_total: Count, "always 0: requests of any alignment are served",
        [state("", "").named("io_stat.invalid_io")];
    counter notify_free_total: Count, "pages that a discard or write-zeroes freed",
        [state(PAGES, "notify_free").named("io_stat.notify_free")];
}
