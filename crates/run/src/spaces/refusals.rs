//! Processes whose memory cannot be managed: each is reported once, and listed in the report.

use crate::options::{UNMANAGED_MAX, Unmanaged};

/// Processes that could not be attached.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The first [`UNMANAGED_MAX`] of them.
    pub listed: Vec<Unmanaged>,
    /// Those that were not reported yet.
    pub untold: Vec<Unmanaged>,
    pub total: u64,
}

impl Refusals {
    /// Adds one.
    pub(crate) fn add(&mut self, process: Unmanaged) {
        self.total += 1;
        if self.listed.len() < UNMANAGED_MAX {
            self.listed.push(process.clone());
        }
        self.untold.push(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_listed_and_all_are_counted() {
        let mut refusals = Refusals::default();
        for pid in 0..200 {
            refusals.add(Unmanaged { pid, program: "a".to_owned(), reason: "b".to_owned() });
        }
        let Refusals { listed, untold, total } = refusals;
        assert_eq!((listed.len(), untold.len(), total), (UNMANAGED_MAX, 200, 200));
    }
}
