//! What a server counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a server did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NbdStats {
    /// Connections open now, handshakes included.
    pub connections: u64,
    /// Connections accepted.
    pub connections_total: u64,
    /// Connections that got no place, because there were as many as the limit allows.
    pub refused_total: u64,
    /// Idle connections closed, because others wanted their places.
    pub gave_way_total: u64,
    /// Connections that ended within the handshake by an error or a timeout, or gave way.
    pub failed_handshakes_total: u64,
    /// Requests answered.
    pub requests_total: u64,
    /// Of them, those answered with an error.
    pub errors_total: u64,
}

#[derive(Debug, Default)]
pub(super) struct NbdCounters {
    pub(super) connections_total: AtomicU64,
    pub(super) refused_total: AtomicU64,
    pub(super) gave_way_total: AtomicU64,
    pub(super) failed_handshakes_total: AtomicU64,
    requests_total: AtomicU64,
    errors_total: AtomicU64,
}

impl NbdCounters {
    /// Counts `requests` answered, of them `errors` with an error.
    pub(super) fn served(&self, requests: u64, errors: u64) {
        // Relaxed: counters only.
        self.requests_total.fetch_add(requests, Ordering::Relaxed);
        self.errors_total.fetch_add(errors, Ordering::Relaxed);
    }

    /// Returns the counts, with `connections` open now.
    pub(super) fn snapshot(&self, connections: u64) -> NbdStats {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NbdStats {
            connections,
            connections_total: value(&self.connections_total),
            refused_total: value(&self.refused_total),
            gave_way_total: value(&self.gave_way_total),
            failed_handshakes_total: value(&self.failed_handshakes_total),
            requests_total: value(&self.requests_total),
            errors_total: value(&self.errors_total),
        }
    }
}
