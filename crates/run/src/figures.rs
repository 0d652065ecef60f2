//! The figures of a run, each declared once: its meaning, and where it is shown.
//!
//! Counters are relaxed atomics that any thread adds to; each is used on its own, and no decision
//! depends on them. docs/use/stats-run.md has them as a table, which a test of the program checks.

use zfold_figures::{FIELD, View, figures, report, state};

/// Least limit of a run in bytes: below, a program has no room to make progress with a few threads.
pub const LIMIT_MIN: u64 = 4 << 20;

/// Titles of the tables that show them.
pub mod table {
    /// Memory that is held.
    pub const MEMORY: &str = "memory";
    /// The backing file.
    pub const BACKING: &str = "backing file";
    /// Memory that cannot leave.
    pub const STAYS: &str = "memory that cannot leave";
    /// Of a report: pages that were missing.
    pub const FAULTS: &str = "page faults that zfold answered";
    /// Work that was done.
    pub const WORK: &str = "work";
    /// Memory that was touched, where that is seen.
    pub const TOUCHED: &str = "memory that was touched, at most";
}

use table::{BACKING, FAULTS, MEMORY, STAYS, TOUCHED, WORK};

figures! {
    /// The figures of a run. Names in `_total` only grow, names in `peak_` are the most so far, and
    /// the others are current values.
    pub struct Figures;
    /// Counters of the threads of the memory side.
    pub(crate) struct Counters;

    gauge limit_bytes: Bytes, "the most that may be resident",
        [report(MEMORY).row("limit"), state(MEMORY).row("limit")];
    gauge resident_bytes: Bytes, "memory that counts against the limit",
        [state(MEMORY).row("resident")];
    gauge peak_charge_bytes: Bytes, "the most memory that counted against the limit",
        [report(MEMORY).row("peak_charge")];
    peak peak_resident_bytes: Bytes, "the most seen resident",
        [report(MEMORY).row("peak_resident")];

    gauge stored_pages: Count, "compressed pages", [];
    gauge stored_pages_bytes: Bytes, "compressed pages, at their full size",
        [state(MEMORY).row("stored")];
    gauge stored_bytes: Bytes, "memory that compressed pages take, tables included",
        [state(MEMORY).row("  memory")];
    gauge copied_pages: Count, "of the compressed pages, copies of resident ones",
        [state(MEMORY).row("  copies")];
    gauge store_limit_bytes: Bytes, "the most memory that compressed pages may take; 0: no limit",
        [FIELD];
    peak peak_stored_pages: Count, "the most pages compressed at a time", [report(MEMORY)];
    peak peak_stored_bytes: Bytes, "the memory they took, tables included",
        [report(MEMORY).row("peak_stored")];
    gauge waiting_bytes: Bytes, "of resident, pages that have left and wait to be compressed",
        [state(MEMORY).row("  waiting")];
    gauge own_bytes: Bytes, "memory of the manager beside these pages and compressed ones",
        [state(MEMORY).row("own")];
    peak peak_own_bytes: Bytes, "the most memory of the manager beside pages of the program",
        [report(MEMORY).row("peak_own")];
    gauge backing_bytes: Bytes, "size of the backing file", [state(BACKING).row("size")];
    gauge backing_used_bytes: Bytes, "bytes of the backing file in use",
        [state(BACKING).row("used")];

    gauge locked_bytes: Bytes, "locked memory; counts", [state(STAYS).row("locked")];
    gauge protected_bytes: Bytes, "read-only, inaccessible or busy memory; counts",
        [state(STAYS).row("protected")];
    gauge left_open_bytes: Bytes, "written private pages of files, small mappings; count",
        [state(STAYS).row("left open")];
    gauge shared_bytes: Bytes, "shared memory; does not count", [state(STAYS).row("shared")];
    gauge file_bytes: Bytes, "pages of files; do not count", [state(STAYS).row("files")];
    gauge page_table_bytes: Bytes, "page tables; do not count", [state(STAYS).row("page tables")];
    gauge peak_locked_bytes: Bytes, "the most locked memory, which stays and counts",
        [report(MEMORY).row("peak_locked")];
    gauge peak_protected_bytes: Bytes, "the most read-only, inaccessible or busy memory",
        [report(MEMORY).row("peak_protected")];
    gauge peak_left_open_bytes: Bytes, "the most written private pages of files, small mappings",
        [report(MEMORY).row("peak_left_open")];
    gauge peak_shared_bytes: Bytes, "the most shared memory, which stays and does not count",
        [report(MEMORY).row("peak_shared")];
    gauge peak_file_bytes: Bytes, "the most pages of files, which do not count",
        [report(MEMORY).row("peak_file")];
    gauge peak_page_table_bytes: Bytes, "the most page tables, which do not count",
        [report(MEMORY).row("peak_page_table")];

    total faults_total: Count, "missing pages that were asked for and brought in",
        [report(FAULTS), state(WORK).row("faults"), View::Rate];
    counter first_touches_total: Count, "pages that did not exist before",
        [report(FAULTS).row("  first_touches")];
    counter refaults_total: Count, "pages taken back before they were compressed",
        [report(FAULTS).row("  refaults"), state(WORK).row("  refaults"), View::Rate];
    counter loads_total: Count, "pages decompressed",
        [report(FAULTS).row("  loads"), state(WORK).row("  loads"), View::Rate];
    gauge fault_p50_ns: Nanoseconds, "half of the faults took at most this",
        [state(WORK).row("  p50")];
    gauge fault_p99_ns: Nanoseconds, "99 % of the faults took at most this",
        [state(WORK).row("  p99")];
    counter prefetched_total: Count, "pages brought in along with a neighbour",
        [report(FAULTS)];

    counter evictions_total: Count, "pages that left a process",
        [report(WORK), state(WORK).row("evictions"), View::Rate];
    counter stores_total: Count, "pages that were compressed", [report(WORK)];
    counter kept_copies_total: Count, "pages that left unchanged, and were not compressed again",
        [report(WORK), state(WORK).row("  kept copies")];
    counter zero_pages_total: Count, "pages of zeros, which were dropped", [];
    counter busy_pages_total: Count, "pages that could not be moved, and are tried again", [];
    counter over_limit_total: Count, "times that usage was seen above the limit",
        [report(WORK), state(WORK).row("over_limit")];

    gauge spaces: Count, "address spaces", [state(WORK).row("address spaces")];
    gauge managed: Count, "address spaces that pages can leave", [state(WORK).row("  managed")];
    total processes_total: Count, "processes that came by fork or exec", [report(WORK)];
    counter managed_total: Count, "address spaces whose pages left", [report(WORK)];
    total unmanaged_total: Count, "processes that could not be managed",
        [report(WORK).row("unmanaged").named("unmanaged_total"), state(WORK).row("unmanaged")];
}

figures! {
    /// How much memory a run touched, at most: where the kernel does not tell of some, all of that
    /// counts. Absent as a whole where nothing is known.
    pub struct Touched;

    gauge touched_10s_bytes: Bytes, "in the last 10 s", [state(TOUCHED).row("10 s")];
    gauge touched_10s_error_bytes: Bytes, "by so much more or less, 95 times in 100",
        [state(TOUCHED).row("  error")];
    gauge touched_1min_bytes: Bytes, "in the last minute", [state(TOUCHED).row("1 min")];
    gauge touched_1min_error_bytes: Bytes, "by so much more or less, 95 times in 100",
        [state(TOUCHED).row("  error")];
    gauge touched_10min_bytes: Bytes, "in the last ten minutes", [state(TOUCHED).row("10 min")];
    gauge touched_10min_error_bytes: Bytes, "by so much more or less, 95 times in 100",
        [state(TOUCHED).row("  error")];
    gauge peak_touched_10s_bytes: Bytes, "the most in any 10 s, error included",
        [report(TOUCHED).row("any 10 s"), FIELD];
    gauge peak_touched_1min_bytes: Bytes, "the most in any minute, error included",
        [report(TOUCHED).row("any 1 min"), FIELD];
    gauge peak_touched_10min_bytes: Bytes, "the most in any ten minutes, error included",
        [report(TOUCHED).row("any 10 min"), FIELD];
    gauge enough_limit_bytes: Bytes, "the limit under which what is touched in any minute stays",
        [report(TOUCHED).row("enough"), FIELD];
}
