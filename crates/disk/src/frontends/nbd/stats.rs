//! The counters of a server: its figures, each declared once.

use zfold_figures::{figures, metric, state};

/// The title of the table in which people see them.
pub const TABLE: &str = "nbd, all disks";

figures! {
    /// The statistics of a server.
    #[non_exhaustive]
    pub struct NbdStats;
    /// The counters of its threads.
    pub(super) struct NbdCounters;

    gauge connections: Count, "connections open now, handshakes included",
        [state(TABLE), metric("nbd_open_connections")];
    counter connections_total: Count, "connections accepted",
        [state(TABLE), metric("nbd_connections_total")];
    counter refused_total: Count, "connections beyond --max-connections, which got no place",
        [state(TABLE), metric("nbd_connections_refused_total")];
    counter gave_way_total: Count, "idle connections closed, because others wanted their places",
        [];
    counter failed_handshakes_total: Count,
        "connections that an error or a timeout ended in the handshake",
        [state(TABLE), metric("nbd_failed_handshakes_total")];
    counter requests_total: Count, "requests answered",
        [state(TABLE), metric("nbd_requests_total")];
    counter errors_total: Count, "requests answered with an error",
        [state(TABLE), metric("nbd_errors_total")];
}

impl NbdCounters {
    /// Counts `requests` answered, of them `errors` with an error.
    pub(super) fn served(&self, requests: u64, errors: u64) {
        self.requests_total.add(requests);
        self.errors_total.add(errors);
    }

    /// Returns the counts, with `connections` open now.
    pub(super) fn snapshot(&self, connections: u64) -> NbdStats {
        NbdStats { connections, ..self.read() }
    }
}
