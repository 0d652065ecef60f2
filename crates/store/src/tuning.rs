//! The options of a store that can be changed while it works, as its threads read them.
//!
//! Each tunable is one atomic and right by itself. A thread that reads two of them may see one of
//! before and one of after a change, and every use copes with that. Only the budget of writeback is
//! changed by several threads at a time: what one takes is in no other's share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::error::OpenError;
use crate::options::Tunables;

/// The tunables as threads read them: each by itself, in no order with anything.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// `NONE` for no limit.
    limit_bytes: AtomicU64,
    accept_percent: AtomicU8,
    same_filled: AtomicBool,
    /// `NONE` for any number.
    writeback_limit_pages: AtomicU64,
    writeback_batch_pages: AtomicU32,
    codec: AtomicU8,
}

const NONE: u64 = u64::MAX;

fn option(value: u64) -> Option<u64> {
    (value != NONE).then_some(value)
}

// Relaxed throughout: a change is seen a moment later, and nothing else hangs on it.
impl Tuning {
    pub(crate) fn new(tunables: &Tunables) -> Self {
        Self {
            limit_bytes: AtomicU64::new(tunables.limit_bytes.unwrap_or(NONE)),
            accept_percent: AtomicU8::new(tunables.accept_percent),
            same_filled: AtomicBool::new(tunables.same_filled),
            writeback_limit_pages: AtomicU64::new(tunables.writeback_limit_pages.unwrap_or(NONE)),
            writeback_batch_pages: AtomicU32::new(tunables.writeback_batch_pages),
            codec: AtomicU8::new(tunables.codec),
        }
    }

    pub(crate) fn get(&self) -> Tunables {
        Tunables {
            limit_bytes: self.limit_bytes(),
            accept_percent: self.accept_percent.load(Ordering::Relaxed),
            same_filled: self.same_filled(),
            writeback_limit_pages: option(self.writeback_limit_pages.load(Ordering::Relaxed)),
            writeback_batch_pages: self.writeback_batch_pages.load(Ordering::Relaxed),
            codec: self.codec(),
        }
    }

    pub(crate) fn set(&self, to: &Tunables) -> Result<(), OpenError> {
        to.check()?;
        self.limit_bytes.store(to.limit_bytes.unwrap_or(NONE), Ordering::Relaxed);
        self.accept_percent.store(to.accept_percent, Ordering::Relaxed);
        self.same_filled.store(to.same_filled, Ordering::Relaxed);
        let pages = to.writeback_limit_pages.unwrap_or(NONE);
        self.writeback_limit_pages.store(pages, Ordering::Relaxed);
        self.writeback_batch_pages.store(to.writeback_batch_pages, Ordering::Relaxed);
        self.codec.store(to.codec, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        option(self.limit_bytes.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn codec(&self) -> u8 {
        self.codec.load(Ordering::Relaxed)
    }

    /// Returns the accept threshold's share of so many bytes.
    pub(crate) fn accept_bytes(&self, limit: u64) -> u64 {
        let percent = self.accept_percent.load(Ordering::Relaxed);
        (u128::from(limit) * u128::from(percent) / 100) as u64
    }

    #[inline]
    pub(crate) fn same_filled(&self) -> bool {
        self.same_filled.load(Ordering::Relaxed)
    }

    /// Takes up to `pages` from the writeback budget; returns how many there were.
    pub(crate) fn take_budget(&self, pages: u64) -> u64 {
        let mut taken = pages;
        let take = |left: u64| {
            taken = pages.min(left);
            Some(if left == NONE { NONE } else { left - taken })
        };
        let _ = self.writeback_limit_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken
    }

    /// Gives pages back to the budget that were not written after all.
    pub(crate) fn return_budget(&self, pages: u64) {
        let give = |left: u64| (left != NONE).then(|| left.saturating_add(pages).min(NONE - 1));
        let _ = self.writeback_limit_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CodecKind;
    use crate::options::StoreOptions;

    #[test]
    fn the_budget_counts_down_and_can_be_given_back() {
        let options = StoreOptions::new(1, CodecKind::Lz4.into());
        let mut tunables = options.tunables();
        let tuning = Tuning::new(&tunables);
        assert_eq!(tuning.take_budget(1 << 40), 1 << 40, "no limit");
        tunables.writeback_limit_pages = Some(10);
        tuning.set(&tunables).unwrap();
        assert_eq!(
            (tuning.take_budget(7), tuning.take_budget(7), tuning.take_budget(7)),
            (7, 3, 0)
        );
        tuning.return_budget(4);
        assert_eq!(tuning.get().writeback_limit_pages, Some(4));
    }

    #[test]
    fn tunables_out_of_range_change_nothing() {
        let tunables = StoreOptions::new(1, CodecKind::Lz4.into()).tunables();
        let tuning = Tuning::new(&tunables);
        let (percent, batch) = (101, 0);
        let wrong = Tunables { accept_percent: percent, ..tunables };
        assert!(tuning.set(&wrong).is_err());
        let wrong = Tunables { writeback_batch_pages: batch, ..tunables };
        assert!(tuning.set(&wrong).is_err());
        assert_eq!(tuning.get(), tunables);
    }
}
