//! What a far backing holds and has done.

/// What a far backing holds and has done. `_total` only grows, the rest is of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FarStats {
    /// Objects in which something is still needed.
    pub objects: u64,
    /// Their bytes, as the engine has them.
    pub object_bytes: u64,
    /// Of these, the bytes that are still needed.
    pub live_bytes: u64,
    /// Objects that are no longer needed and not yet deleted.
    pub dead_objects: u64,
    /// Bytes of memory that the maps, the list of objects and what was read ahead take. They are
    /// part of the store's `metadata_bytes`, so they count against its limit.
    pub metadata_bytes: u64,
    /// Bytes that lie on this machine first.
    pub near_bytes: u64,
    /// Bytes that went from there to the engine because they were old.
    pub moved_bytes_total: u64,
    /// Bytes that the engine has acknowledged.
    pub put_bytes_total: u64,
    /// Bytes that came from the engine and were what was sent.
    pub got_bytes_total: u64,
    /// Objects that the engine has acknowledged.
    pub puts_total: u64,
    /// Ranges that came from the engine and were what was sent.
    pub gets_total: u64,
    /// Reads that needed no get, because an earlier one had brought what they wanted.
    pub read_ahead_total: u64,
    /// Objects whose removal the engine has acknowledged.
    pub deletes_total: u64,
    /// Calls of the engine that were made again after one that failed.
    pub retries_total: u64,
    /// Calls of the engine that failed, or brought wrong bytes.
    pub failures_total: u64,
    /// Of the failures, those that brought wrong bytes.
    pub forged_total: u64,
    /// Bytes that the cleaner wrote anew, part of `put_bytes_total`.
    pub cleaned_bytes_total: u64,
    /// Copies that the engine should have, are gone, and were not made again. Of an engine that
    /// keeps one copy, what is lost.
    pub copies_missing: u64,
    /// Copies that were gone and that the engine made again.
    pub copies_made_total: u64,
    /// How often the engine was given up for a while.
    pub absences_total: u64,
    /// Microseconds that writes and the cleaner waited for their turns to send.
    pub waited_us_total: u64,
    /// Microseconds of a get that succeeded: half of them took less.
    pub get_us_p50: u64,
    /// Microseconds of a get that succeeded: 99 of a hundred took less.
    pub get_us_p99: u64,
    /// Microseconds of a put that succeeded: half of them took less.
    pub put_us_p50: u64,
    /// Microseconds of a put that succeeded: 99 of a hundred took less.
    pub put_us_p99: u64,
    /// Whether the engine is given up now, so that nothing is written.
    pub absent: bool,
}
