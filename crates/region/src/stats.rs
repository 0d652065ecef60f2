//! The figures of a memory, each declared once, which threads and a signal handler count.
//!
//! Any thread counts, at any time; nothing here is locked or allocated after it was made. Each
//! number is used on its own; numbers read one after the other may be from different moments.

use zfold_figures::{Quantiles, figures};

figures! {
    /// The figures of a [`Memory`](super::Memory). `_total` counters only grow, the others are
    /// current values; all are read while threads work.
    #[non_exhaustive]
    pub struct MemoryStats {
        /// How long faults took, in nanoseconds: from the entry of the handler to the presence of
        /// the page. The delivery of the signal comes on top.
        pub latency: Quantiles,
    };
    /// The counters of threads and of the signal handler.
    pub(super) struct Counters;

    gauge page_bytes: Bytes, "size of a page of the system", [];
    gauge limit_pages: Pages, "the most pages that may be uncompressed in memory", [];
    gauge resident_pages: Pages,
        "uncompressed pages: in place, on their way, and in the staging area",
        [];
    gauge staged_pages: Pages, "of these, in the staging area: a touch gets them back for a copy",
        [];
    gauge pinned_pages: Pages, "of these, pinned; a page counts once for each pin", [];
    gauge stored_pages: Pages, "pages that are compressed in the store, and nowhere else", [];
    // A page with a copy that leaves unchanged need not be compressed again. Copies count against
    // the store's limit, and go first when it is reached.
    gauge copied_pages: Pages,
        "pages in memory or given up that have a compressed copy in the store", [];
    gauge compressed_bytes: Bytes, "compressed bytes of stored and copied pages", [];
    gauge store_bytes: Bytes, "all memory that the store takes", [];

    counter faults_total: Count,
        "touches of missing pages, and writes to pages that came back protected from them", [];
    counter first_touches_total: Count, "of these, on pages that had not been touched before", [];
    counter refaults_total: Count, "of these, on pages that came back from the staging area", [];
    counter loads_total: Count, "of these, on pages that came out of the store", [];
    counter prefetched_total: Count,
        "pages brought because touches were in sequence, or on request", [];
    counter waits_for_room_total: Count, "faults that waited until another page had left", [];
    counter evictions_total: Count, "pages that left their places", [];
    counter stores_total: Count, "pages compressed into the store", [];
    counter kept_copies_total: Count,
        "pages that left without being compressed: the store had a copy",
        [];
    counter zero_pages_total: Count, "pages of zeros, which were dropped", [];
    counter busy_pages_total: Count, "pages that a device or another process kept from leaving", [];
    counter store_failures_total: Count, "pages that the store refused; they stayed", [];
}
