//! Processes whose memory cannot be managed: each is reported once, and listed in the report.

use crate::options::{UNMANAGED_MAX, Unmanaged};

/// Processes that could not be attached.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The first of them.
    listed: Vec<Unmanaged>,
    /// Those that were not reported yet.
    untold: Vec<Unmanaged>,
    total: u64,
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

    /// Returns those that were added since the last call.
    pub(crate) fn untold(&mut self) -> Vec<Unmanaged> {
        std::mem::take(&mut self.untold)
    }

    /// Returns the first [`UNMANAGED_MAX`].
    pub(crate) fn listed(&self) -> Vec<Unmanaged> {
        self.listed.clone()
    }

    /// Returns how many there were.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_all_are_counted() {
        let mut refusals = Refusals::default();
        for pid in 0..200 {
            refusals.add(Unmanaged { pid, program: "a".to_owned(), reason: "b".to_owned() });
        }
        assert_eq!((refusals.untold().len(), refusals.untold().len()), (200, 0));
        assert_eq!((refusals.listed().len(), refusals.total()), (UNMANAGED_MAX, 200));
    }
}
