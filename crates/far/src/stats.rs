//! The statistics of a far backing: its figures, each declared once.

use zfold_figures::{figures, metric, state};

/// The title of the table in which people see them.
pub const TABLE: &str = "pages on other machines";

figures! {
    /// The statistics of a far backing. `_total` only grows, the rest is of now.
    #[non_exhaustive]
    pub struct FarStats {
        /// Whether the engine counts as unreachable, so that nothing is written.
        pub absent: bool,
    };
    /// The counts of the threads that call the engine.
    pub(crate) struct Counters;

    gauge objects: Count, "objects of which some bytes are still needed", [state(TABLE)];
    gauge object_bytes: Bytes, "bytes on other machines",
        [state(TABLE), metric("far_object_bytes")];
    gauge live_bytes: Bytes, "of these, bytes that are still needed",
        [state(TABLE), metric("far_live_bytes")];
    gauge dead_objects: Count, "objects no longer needed and not yet deleted", [state(TABLE)];
    // They are part of the store's `metadata_bytes`, so they count against its limit.
    gauge metadata_bytes: Bytes, "memory on this machine, for the map",
        [state(TABLE), metric("far_metadata_bytes")];
    counter puts_total: Count, "objects sent", [state(TABLE)];
    counter put_bytes_total: Bytes, "bytes sent", [state(TABLE), metric("far_put_bytes_total")];
    counter gets_total: Count, "ranges fetched whose bytes were those that were sent",
        [state(TABLE)];
    counter got_bytes_total: Bytes, "bytes fetched", [state(TABLE), metric("far_got_bytes_total")];
    counter deletes_total: Count, "objects deleted", [state(TABLE)];
    counter cleaned_bytes_total: Bytes, "bytes sent again to make room",
        [state(TABLE), metric("far_cleaned_bytes_total")];
    counter retries_total: Count, "calls made again", [state(TABLE), metric("far_retries_total")];
    counter failures_total: Count, "calls that failed",
        [state(TABLE), metric("far_failures_total")];
    counter forged_total: Count, "of these, fetches of other bytes than were sent", [state(TABLE)];
    counter absences_total: Count, "times that the engine counted as unreachable",
        [state(TABLE), metric("far_absences_total")];
    gauge get_us_p50: Microseconds, "half of the fetches took at most this",
        [state(TABLE), metric("far_get_us_p50")];
    gauge get_us_p99: Microseconds, "99 % of the fetches took at most this",
        [state(TABLE), metric("far_get_us_p99")];
    gauge put_us_p50: Microseconds, "half of the sends took at most this",
        [state(TABLE), metric("far_put_us_p50")];
    gauge put_us_p99: Microseconds, "99 % of the sends took at most this",
        [state(TABLE), metric("far_put_us_p99")];
}
