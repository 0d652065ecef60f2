//! The costs of fetching lines and of waiting on one machine.

/// A machine of clusters of cores; the cores of a cluster are near each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Cores of a cluster, at least one.
    pub cluster: u32,
    /// Time to fetch a line from another core of the cluster, in nanoseconds.
    pub transfer_ns: f64,
    /// How much more lines from other clusters cost.
    pub far_factor: f64,
    /// Whether cores get a lock in the order in which they came, as from ticket and queued locks;
    /// otherwise the core that first sees it free.
    pub fair: bool,
    /// Time between two looks of a waiting core, in nanoseconds.
    pub look_ns: f64,
    /// Added to a claim of a lock's word for every other core that looks at it, in transfers from
    /// that core; 0 for queued locks, whose waiters look at a line of their own.
    pub waiter_transfers: f64,
    /// Time after which a waiting core gives its processor away between looks, in nanoseconds;
    /// infinite in a kernel.
    pub patience_ns: f64,
    /// Time between two looks from then on, in nanoseconds.
    pub yield_ns: f64,
}

impl Machine {
    /// Returns by what factor a line costs `core` more that `owner` used last than one that comes
    /// from near; 0 if it was `core` itself, or none.
    pub(super) fn distance(&self, owner: Option<u32>, core: u32) -> f64 {
        match owner {
            None => 0.0,
            Some(owner) if owner == core => 0.0,
            Some(owner) if owner / self.cluster == core / self.cluster => 1.0,
            Some(_) => self.far_factor,
        }
    }
}
